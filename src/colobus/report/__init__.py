"""Reports: one file that says what runs reached, how sure that is, and how it was measured."""
