"""Transforms of graphs that front ends and passes both use: gradients and batching."""
