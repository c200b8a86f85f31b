"""Passes that choose the order of axes of values in memory."""
