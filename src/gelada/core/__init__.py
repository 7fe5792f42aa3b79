"""What everything else is built on: types, errors, seeds, files, checkpoints, timing."""
