"""All settings of a run: their types and rules, presets, and other names for them."""
