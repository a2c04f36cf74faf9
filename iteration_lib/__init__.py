"""Durable iterations on Spark, driven by Airflow: every epoch recorded, aligned, checkpointed and resumable."""
