"""Transforms of graphs for front ends and passes: gradients and batching."""
