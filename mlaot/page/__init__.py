"""The page of a model: what passes, kernels and memory do, and what takes how long, for ``mlaot report``."""
