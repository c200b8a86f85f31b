"""Programs to C: expressions, statements, the helper functions that they call, and whole files."""
