"""Traced arrays: what a model's function computes with, and how it becomes a graph."""
