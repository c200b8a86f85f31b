"""The order in which axes of values lie in memory."""
