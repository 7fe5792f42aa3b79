"""Makes the tables of the results' pages."""
