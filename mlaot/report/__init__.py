"""Data and output of a build besides the C: golden vectors, metadata, warnings, reports."""
