"""From what a user declares to a graph: scalars (micrograd) and arrays (NumPy)."""
