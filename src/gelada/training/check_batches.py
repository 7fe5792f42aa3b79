"""Rules between the settings of batches: of what they are made, and how often they are used."""

from __future__ import annotations

from gelada.core.errors import GeladaError
from gelada.envs.make import agents
from gelada.roles.parameters.published import KEPT
from gelada.training.experiment import Experiment, ReuseSettings, flag, given

UNUSED = ReuseSettings()
"""Each batch is used in its own round only, and has fresh windows only."""


def check_batch(experiment: Experiment) -> None:
    """Refuse batches that cannot be, and emulator threads without a game."""
    shape = experiment.shape
    if experiment.deterministic and shape.batch:
        raise GeladaError(
            f"--batch {shape.batch} with --deterministic: a batch is one trajectory of each actor "
            "there; use --batch 0"
        )
    if shape.batch and shape.windows < 1:
        raise GeladaError(
            f"--batch {shape.batch}: must be at least one window of --length {shape.length} steps"
        )
    if shape.emulators > shape.games:
        raise GeladaError(
            f"--emulators {shape.emulators} with --games {shape.games}: each thread needs a game; "
            f"use at most {shape.games}"
        )


def check_central(experiment: Experiment) -> None:
    """Refuse queues of a central run that could not give their part of a batch."""
    shape, queues = experiment.shape, experiment.shape.replays
    if experiment.deterministic and shape.ahead >= KEPT:
        raise GeladaError(
            f"--ahead {shape.ahead} with --deterministic: servers keep {KEPT} versions; "
            f"use at most {KEPT - 1}"
        )
    if shape.loaders and experiment.algorithm.source == "buffer":
        raise GeladaError(
            f"--loaders {shape.loaders} with {type(experiment.algorithm).__name__}: what is "
            "sampled would be older than the priorities; leave it out"
        )
    if queues > 1 and shape.replicas > 1:
        raise GeladaError(
            f"--replays {queues} with --reduce group: each learner has one queue; leave it out"
        )
    if queues > 1 and experiment.algorithm.source == "buffer":
        raise GeladaError(
            f"--replays {queues} with a single learner: it has one replay buffer; add --learners"
        )
    for what, count in (("actors", shape.actors), ("windows in a batch", shape.windows)):
        if count % queues:
            fits = [n for n in range(1, queues) if not (shape.actors % n or shape.windows % n)]
            raise GeladaError(
                f"--replays {queues}: {count} {what} cannot be shared equally by so many queues; "
                f"use {fits[-1]}"
            )
    # one trajectory may be down to a last window while its actor waits for room
    rows = shape.games * agents(experiment.games)
    lacking = rows - 1 if shape.windows // queues % rows else 0
    most = shape.actors // queues * shape.in_flight * rows - lacking
    if shape.batch and shape.windows // queues > most:
        raise GeladaError(
            f"--in-flight {shape.in_flight}: the actors of a queue send at most "
            f"{most * shape.length:,} steps ahead, fewer than its "
            f"{shape.windows // queues * shape.length:,} of a batch; raise it or lower --batch"
        )


def check_reuse(experiment: Experiment) -> None:
    """Refuse to use experience again where it cannot be, or where nothing would be."""
    reuse, shape, algorithm = experiment.reuse, experiment.shape, experiment.algorithm
    changed = [name for name in vars(reuse) if getattr(reuse, name) != getattr(UNUSED, name)]
    if not changed:
        return
    what = given(flag(changed[0], "reuse"), getattr(reuse, changed[0]))
    name = type(algorithm).__name__
    if algorithm.source == "buffer":
        raise GeladaError(f"{what} with {name}: it has a replay buffer; leave it out")
    if shape.apart:
        raise GeladaError(f"{what} with {name}: it learns from each step once; leave it out")
    if shape.replicas > 1:
        raise GeladaError(
            f"{what} with --reduce group: the learners' batches would differ in size; leave one of "
            "the two out"
        )
    if algorithm.epochs < 2 and (reuse.buffer_batches > 1 or reuse.ramp_up):
        what = "--ramp-up" if reuse.ramp_up else f"--buffer-batches {reuse.buffer_batches}"
        raise GeladaError(
            f"{what} with --epochs {algorithm.epochs}: a batch is used once; raise --epochs or "
            "leave it out"
        )
    rows = agents(experiment.games)
    trajectory = shape.games * shape.length * rows
    kept = reuse.replay_slots * trajectory
    batch = shape.datapoints // shape.queues * (1 if shape.batch else rows)
    if reuse.replay_proportion and kept <= batch:
        raise GeladaError(
            f"--replay-slots {reuse.replay_slots}: they hold {kept:,} steps, no more than the "
            f"{batch:,} of a batch, so nothing would be replayed; raise it to at least "
            f"{batch // trajectory + 1}"
        )
