"""From scalars to tensors, and from sums of products to contractions."""
