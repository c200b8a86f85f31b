"""Nest to nest, for one machine."""
