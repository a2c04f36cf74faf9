"""The loop: one attempt's life, from opening or taking over a run to releasing it. Knows no database."""
