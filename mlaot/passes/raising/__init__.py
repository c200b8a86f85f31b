"""Passes that raise scalars to tensors, and sums of products to contractions."""
