"""Checks of recurrent policies, and of games of several agents."""

from __future__ import annotations

from gelada.core.errors import GeladaError
from gelada.envs.make import agents
from gelada.training.experiment import Experiment


def check_recurrent(experiment: Experiment) -> None:
    """Refuse a memory that the algorithm cannot train, and sequences that do not fit."""
    kind, algorithm = experiment.network.recurrent, experiment.algorithm
    length, minibatch = experiment.shape.length, algorithm.minibatch
    if kind == "none":
        return
    sequence = getattr(algorithm, "sequence", 0)
    if not sequence:
        raise GeladaError(
            f"--recurrent {kind} with {type(algorithm).__name__}: it does not learn from "
            "sequences; leave it out, or take a preset with APPO, such as ppo-pong"
        )
    if length % sequence:
        fits = max(n for n in range(1, sequence) if length % n == 0)
        raise GeladaError(
            f"--length {length} with --sequence {sequence}: must be a multiple of it; use --length "
            f"{-(-length // sequence) * sequence} or --sequence {fits}"
        )
    if minibatch < sequence:
        raise GeladaError(
            f"--minibatch {minibatch}: must not be below --sequence {sequence}, as a minibatch has "
            "whole sequences; raise it or lower the other"
        )


def check_agents(experiment: Experiment) -> None:
    """Refuse what does not know that a game has several agents."""
    algorithm, name = experiment.algorithm, experiment.games.game
    kind = type(algorithm).__name__
    if agents(experiment.games) > 1 and "central" not in algorithm.topologies:
        raise GeladaError(f"{name} with {kind}: it has several agents; take a preset with APPO")
    if agents(experiment.games) > 1 and algorithm.source == "buffer":
        raise GeladaError(
            f"{name} with {kind}: a replay buffer keeps games of one agent; take a preset with APPO"
        )
    if experiment.network.policies != "separate":
        return
    shape, count = experiment.shape, agents(experiment.games)
    windows = shape.windows // shape.queues
    if shape.batch and windows % count:
        fits = max(windows // count, 1) * count * shape.queues * shape.length
        raise GeladaError(
            f"--batch {shape.batch} with --policies separate: {windows} windows of a queue cannot "
            f"be shared equally by {count} agents; use {fits}"
        )
    if not hasattr(algorithm, "sequence"):
        raise GeladaError(
            f"--policies separate with {kind}: not tested; leave it out, or take a preset with APPO"
        )
