"""What a build stores and prints of a model besides its C: golden vectors, metadata, warnings, reports."""
