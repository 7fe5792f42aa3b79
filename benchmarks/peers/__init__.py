"""Other systems, each run by a script in an environment of its own."""
