"""Where trajectories wait to be learned from: a queue that forgets, and a replay buffer."""
