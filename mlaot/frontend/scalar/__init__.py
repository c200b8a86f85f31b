"""Models of scalars: micrograd's ``Value``, networks of them, and how their graphs become IR."""
