"""Schedules, which rewrite nests for one machine; declarations of machines, and numbers tuned for them."""
