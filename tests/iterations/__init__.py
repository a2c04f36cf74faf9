"""Iterations that tests run: small, real, and counting how often their bodies run."""
