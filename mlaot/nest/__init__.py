"""Kernels as loop nests: values that are built, scheduled, verified, interpreted and printed."""
