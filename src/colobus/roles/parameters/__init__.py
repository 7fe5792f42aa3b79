"""Parameter servers, the snapshots they publish, and how others get them."""
