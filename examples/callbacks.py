"""Callbacks: keeps every score, and ends the run when the agent is good enough."""

import colobus

scores = []


def remember(episode):
    """Keep the score of an episode."""
    scores.append(episode.score)


def stop_when_good(status):
    """End the run at a mean score of 0.5."""
    if status.score is not None and status.score > 0.5:
        raise colobus.StopTraining(f"good enough after {status.steps} steps")


result = colobus.train("catch", steps=200_000, on_episode=remember, on_update=stop_when_good)
print(f"{result.stopped}, {len(scores)} games")
