"""A training run: its settings, the graph of its roles, and the loop that watches over it."""
