"""Types, errors, seeds, files, checkpoints and timing, which all other packages use."""
