"""Passes over frozen weights, which nothing changes after the build."""
