"""What the commands of the benchmarks share."""
