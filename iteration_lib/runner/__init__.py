"""Execution: what runs operators. Two implementations, Spark and plain Python, under one contract."""
