"""Operator state: blocks, files with digests, manifests, and where they lie."""
