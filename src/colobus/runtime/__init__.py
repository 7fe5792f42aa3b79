"""Where roles live: on threads of one process, in processes of a Ray cluster, in simulated time."""
