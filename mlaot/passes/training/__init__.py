"""Entries of a module, and what training needs."""
