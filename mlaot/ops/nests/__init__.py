"""Loop nests of ops that are not elementwise, views, reductions in vectors or products, with a builder for each op."""
