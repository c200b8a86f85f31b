"""Equal graphs that take less to compute, whatever they are for."""
