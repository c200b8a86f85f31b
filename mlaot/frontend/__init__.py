"""Front ends: models that a user declares with scalars (micrograd) or arrays (NumPy) become graphs."""
