"""Measurements of the project, and the pages that tell them. The package has nothing of it."""
