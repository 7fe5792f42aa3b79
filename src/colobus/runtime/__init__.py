"""Where roles live: on threads of one process, or in processes of a Ray cluster."""
