"""The folder of a run: the only place that knows its files."""
