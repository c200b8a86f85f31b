"""Passes that derive the entries of a module, and passes for training."""
