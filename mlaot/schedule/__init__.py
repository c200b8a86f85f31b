"""Nest to nest, for one machine: what is declared of machines, what was tuned for them, and schedules."""
