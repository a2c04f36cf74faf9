"""Ready iterations, written with the public API alone: to run, and to learn from."""
