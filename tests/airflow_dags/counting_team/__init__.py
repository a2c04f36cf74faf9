"""What a team keeps beside its DAG files."""
