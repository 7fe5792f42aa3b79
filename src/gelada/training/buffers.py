"""The replay buffers of an experiment: their shapes, sampling, limits, and the memory of all."""

from __future__ import annotations

from gelada.envs.make import agents
from gelada.roles.replay.rate_limiter import MinimumSize, RateLimiter, SamplesPerInsert
from gelada.roles.replay.ring import bytes_needed
from gelada.roles.replay.sampling import Prioritized, Sampling, Uniform
from gelada.roles.replay.shape import BufferShape
from gelada.training.experiment import Experiment


def actors_of(experiment: Experiment) -> list[int]:
    """Return how many actors add to each replay buffer, of which there is at least one."""
    shape = experiment.shape
    if shape.learners:
        return [len(range(i, shape.actors, shape.replays)) for i in range(shape.replays)]
    return [shape.actors] * max(shape.workers, 1)


def batch_of(experiment: Experiment) -> tuple[int, int]:
    """Return the windows of a learner's batch, and the steps of a window."""
    shape, algorithm = experiment.shape, experiment.algorithm
    if algorithm.source == "buffer":
        return experiment.replay.windows, algorithm.window(shape.length)
    return shape.windows, shape.length


def shape_of(experiment: Experiment, actors: int, frame_shape: tuple[int, int]) -> BufferShape:
    """Return the shape of a buffer to which so many actors add frames [H, W]."""
    algorithm = experiment.algorithm
    windows, length = batch_of(experiment)
    return BufferShape(
        experiment.replay.capacity,
        streams=actors * experiment.shape.games,
        windows=windows,
        length=length,
        stack=experiment.network.stack,
        frame_shape=frame_shape,
        first_only=algorithm.learned(length) == 1,
    )


def sampling_of(experiment: Experiment, steps: int) -> Sampling:
    """Return how each buffer of a run samples that goes on after so many environment steps."""
    memory, buffers = experiment.replay, len(actors_of(experiment))
    if not memory.prioritized:
        return Uniform()
    whole = Prioritized(memory.alpha, memory.beta, memory.beta_end, memory.beta_steps)
    # a buffer sees its own share of what is played from now on
    left = max(memory.beta_steps - steps, 0) / buffers
    return Prioritized(memory.alpha, whole.exponent(steps), memory.beta_end, left)


def limiter_of(experiment: Experiment, actors: int) -> RateLimiter:
    """Return what keeps learners in step with the so many actors of a buffer."""
    memory, shape = experiment.replay, experiment.shape
    if not memory.samples_per_insert:
        return MinimumSize(memory.minimum)
    trajectory = shape.games * shape.length
    tolerance = max(memory.samples_per_insert * trajectory * actors, memory.windows)
    return SamplesPerInsert(
        memory.samples_per_insert, memory.minimum, tolerance, trajectory, memory.windows
    )


def buffer_bytes(experiment: Experiment, frame_shape: tuple[int, int]) -> int:
    """Return the bytes that experience takes that is used again, for frames uint8[H, W].

    With trajectory queues these are the frames of the windows that they keep and of the batches
    that the learner holds.
    """
    if not experiment.replay.capacity:
        shape, reuse = experiment.shape, experiment.reuse
        height, width = frame_shape
        kept = shape.queues * reuse.replay_slots * shape.games if reuse.replay_proportion else 0
        batch = shape.windows * (1 + reuse.replay_proportion)
        windows = kept + round((reuse.buffer_batches - 1) * batch)
        windows *= agents(experiment.games)
        return windows * (shape.length + experiment.network.stack) * height * width
    return sum(
        bytes_needed(shape_of(experiment, actors, frame_shape), experiment.replay.prioritized)
        for actors in actors_of(experiment)
    )
