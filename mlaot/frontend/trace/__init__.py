"""Traced arrays, which a model's function computes with while it becomes a graph."""
