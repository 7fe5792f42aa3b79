"""What runs wrote, read again: the live page of ``gelada watch`` and the reports."""
