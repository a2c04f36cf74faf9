"""Metadata: what the database keeps of runs. Postgres, and a twin in memory for tests and simulation."""
