"""The pages of docs/results that are written from what was measured, a module for each subject."""
