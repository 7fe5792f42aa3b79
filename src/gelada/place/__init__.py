"""Places: where the roles of a plan live. The same plan runs on threads and inline."""
