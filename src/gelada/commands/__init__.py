"""What stands behind each command of the command line; nothing here is needed to train."""
