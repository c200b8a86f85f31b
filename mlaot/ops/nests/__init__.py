"""Loop nests of ops that are neither elementwise, views, reductions in vectors nor products: a builder an op."""
