"""Models of scalars: micrograd's ``Value``, networks of values, and the translation of their graphs to IR."""
