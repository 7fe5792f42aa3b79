"""What an experiment's experience stores are: policies, limits and size."""

from __future__ import annotations

from gelada.algorithms.dqn import DQN
from gelada.roles.replay.rate_limiter import MinimumSize, RateLimiter, SamplesPerInsert
from gelada.roles.replay.ring import bytes_needed
from gelada.roles.replay.sampling import Prioritized, Select, Uniform
from gelada.training.experiment import Experiment


def select_of(experiment: Experiment) -> Select:
    """Return which windows are drawn how often."""
    memory = experiment.replay
    return Prioritized(memory.alpha, memory.beta) if memory.prioritized else Uniform()


def limiter_of(experiment: Experiment, actors: int) -> RateLimiter:
    """Return what keeps actors and learners in step at a store with so many actors."""
    memory, shape = experiment.replay, experiment.shape
    if not memory.samples_per_insert:
        return MinimumSize(memory.minimum)
    trajectory = shape.games * shape.length
    tolerance = max(memory.samples_per_insert * trajectory * actors, memory.windows)
    return SamplesPerInsert(
        memory.samples_per_insert, memory.minimum, tolerance, trajectory, memory.windows
    )


def batch_of(experiment: Experiment) -> tuple[int, int]:
    """Return the windows of a learner's batch and their steps."""
    shape, algorithm = experiment.shape, experiment.algorithm
    if isinstance(algorithm, DQN):
        return experiment.replay.windows, algorithm.window(shape.length)
    return shape.windows, shape.length


def actors_of(experiment: Experiment) -> list[int]:
    """Return how many actors add to each store."""
    shape = experiment.shape
    if shape.learners:
        return [len(range(i, shape.actors, shape.replays)) for i in range(shape.replays)]
    return [shape.actors] * max(shape.workers, 1)


def store_bytes(experiment: Experiment, frame_shape: tuple[int, int]) -> int:
    """Return what all stores take at once, for frames uint8[H, W]; 0 without any."""
    memory, shape = experiment.replay, experiment.shape
    if not memory.capacity:
        return 0
    length, stack = batch_of(experiment)[1], experiment.network.stack
    return sum(
        bytes_needed(
            memory.capacity, actors * shape.games, length, stack, frame_shape, memory.prioritized
        )
        for actors in actors_of(experiment)
    )
