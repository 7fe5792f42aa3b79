"""What runs wrote, read again: the live page of ``colobus watch`` and the reports."""
