"""What a user writes: the iteration's definition, checked, and nothing that runs it."""
