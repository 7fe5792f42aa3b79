"""Pure functions for the mathematics: no roles, no configuration, no logging."""
