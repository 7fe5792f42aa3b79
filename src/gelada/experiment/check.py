"""Checks of an experiment: what is wrong is said before anything is started.

Types and ranges stand beside the fields (`gelada.core.fields`); here are the rules between
settings.

Rules between the settings of batches: of what they are made, and how often they are used.

Checks of recurrent policies, and of games of several agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from gelada.algorithms.api import Topology
from gelada.algorithms.appo import APPO
from gelada.algorithms.dqn import DQN
from gelada.core.errors import GeladaError
from gelada.core.fields import check as check_fields
from gelada.core.fields import hints_of, only_with, read, shown
from gelada.envs.make import agents, frame_shape, is_atari, is_vector, planes
from gelada.experiment.settings import (
    Experiment,
    ReplaySettings,
    ReuseSettings,
    flag,
    given,
    groups_of,
)
from gelada.nets.autoencoder import STRIDE
from gelada.nets.config import PIXELS
from gelada.nets.torsos import smallest_side
from gelada.roles.parameters.published import KEPT
from gelada.roles.parameters.server import Quorum

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


class Across(NamedTuple):
    """Settings of one group that have an effect only because of another group."""

    group: str
    names: tuple[str, ...]  # empty: all of the group
    what: str  # completes "it has an effect only …"
    holds: Callable[[Experiment], bool]


ACROSS = (
    Across("games", (), "in Atari games", lambda experiment: is_atari(experiment.games.game)),
    Across(
        "replay",
        (),
        "with an algorithm that learns from each step again, such as the DQN of apex-pong",
        lambda experiment: experiment.algorithm.source == "buffer",
    ),
    Across(
        "shape",
        ("batch",),
        "with APPO, PQN or A3C: the batch of DQN has --windows",
        lambda experiment: experiment.algorithm.source != "buffer",
    ),
    Across(
        "shape",
        ("ahead",),
        "with APPO, PQN or A3C: with a replay buffer actors never wait for a version",
        lambda experiment: experiment.algorithm.source != "buffer",
    ),
    Across(
        "network",
        ("policies",),
        "in a game of several agents, such as catch-pair",
        lambda experiment: agents(experiment.games) > 1,
    ),
    Across(
        "algorithm",
        ("sequence",),
        "with --recurrent lstm",
        lambda experiment: experiment.network.recurrent != "none",
    ),
    Across(
        "shape",
        ("emulators",),
        "in Atari games",
        lambda experiment: is_atari(experiment.games.game),
    ),
)


TOPOLOGIES: dict[Topology, str] = {
    "central": "leave out --workers and --learners",
    "replicas": "add --reduce group",
    "workers": "use --workers 1 or more",
    "apart": "use --learners 1 or more",
}
"""What to do for each."""


def check(experiment: Experiment) -> None:
    """Raise GeladaError for the first setting that cannot be; it names value, rule and fix."""
    for group, settings in groups_of(experiment).items():
        check_fields(settings, partial(flag, group=group))
    for name in ("seed", "deterministic"):
        read(hints_of(Experiment)[name], getattr(experiment, name), flag, name)
    if experiment.stop.until_evaluated is not None and not experiment.sidecars.evaluator:
        goal = shown(experiment.stop.until_evaluated)
        raise GeladaError(f"--until-evaluated {goal}: the run has no evaluator; add --evaluator")
    _check_shape(experiment)
    check_reuse(experiment)
    shape = experiment.shape
    rows = 1 if shape.batch else agents(experiment.games)  # --batch counts each agent's steps
    experiment.algorithm.check(shape.datapoints * rows)
    check_recurrent(experiment)
    check_agents(experiment)
    _check_autoencoder(experiment)
    _check_frames(experiment)


def check_effect(experiment: Experiment, base: Experiment) -> None:
    """Raise GeladaError if a setting differs from ``base`` and has no effect in the experiment."""
    for group, name in _changed(experiment, base):
        settings = getattr(experiment, group) if group else experiment
        kind: Any = type(settings)
        rule = only_with(hints_of(kind)[name])
        whats = [rule.what] if rule and not rule.holds(settings) else []
        whats += [
            across.what
            for across in ACROSS
            if across.group == group
            and name in (across.names or (name,))
            and not across.holds(experiment)
        ]
        if whats:
            what = given(flag(name, group), getattr(settings, name))
            raise GeladaError(f"{what}: has an effect only {whats[-1]}")


def differing(experiment: Experiment, base: Experiment) -> list[str]:
    """Return the flags of the settings that differ between two experiments."""
    return [flag(name, group) for group, name in _changed(experiment, base)]


def check_resumed(experiment: Experiment, base: Experiment, resume: str, stop: str) -> None:
    """Raise GeladaError if a setting differs that is fixed by the run's config.json.

    Args:
        experiment: as it is asked for.
        base: as the run has it.
        resume: what resumes, in the message.
        stop: what the stop rule is called there.
    """
    kept = replace(
        base, stop=experiment.stop, tracker=experiment.tracker, sidecars=experiment.sidecars
    )
    if fixed := differing(experiment, kept):
        raise GeladaError(
            f"{', '.join(fixed)} with {resume}: a run's settings are fixed by its config.json; "
            f"only {stop}, checkpoints and sidecars may change"
        )


def _changed(experiment: Experiment, base: Experiment) -> list[tuple[str, str]]:
    """Return (group, name) of the settings that differ; the group of single ones is ""."""
    before = groups_of(base)
    found = [
        (group, name)
        for group, settings in groups_of(experiment).items()
        for name, value in vars(settings).items()
        if value != getattr(before[group], name, None)
    ]
    alone = ("seed", "deterministic")
    return [
        *(("", name) for name in alone if getattr(experiment, name) != getattr(base, name)),
        *found,
    ]


def _check_shape(experiment: Experiment) -> None:
    """Refuse topologies that could never make a step, or that are not tested."""
    shape, algorithm = experiment.shape, experiment.algorithm
    if algorithm.source == "buffer":
        _check_replay(experiment)
    elif experiment.replay != ReplaySettings():
        raise GeladaError(
            f"a replay buffer with {type(algorithm).__name__}: it learns from each step once; "
            "leave out --capacity and the like, or take a preset with DQN, such as apex-pong"
        )
    _check_topology(experiment)
    check_batch(experiment)
    if not shape.apart:
        check_central(experiment)
        return
    Quorum(shape.gradients).check(shape.learning)
    if shape.asynchronous and shape.quorum:
        raise GeladaError(
            f"--quorum {shape.quorum} with --asynchronous: every gradient makes a step; leave out "
            "one of them"
        )
    if experiment.deterministic and (shape.asynchronous or shape.gradients < shape.learning):
        what = "--asynchronous" if shape.asynchronous else f"--quorum {shape.quorum}"
        raise GeladaError(
            f"{what} with --deterministic: which gradients count depends on who is faster; use a "
            f"quorum of all {shape.workers} workers"
        )


def _check_topology(experiment: Experiment) -> None:
    shape, algorithm = experiment.shape, experiment.algorithm
    if shape.learners and shape.workers:
        raise GeladaError(
            f"--learners {shape.learners} with --workers {shape.workers}: a worker has its own "
            "learner; use one of the two"
        )
    topology: Topology = "workers" if shape.workers else "apart" if shape.learners else "central"
    if topology == "apart" and shape.reduce == "group":
        topology = "replicas"
    if topology not in algorithm.topologies:
        what = f"--learners {shape.learners}" if shape.learners else f"--workers {shape.workers}"
        what += " --reduce group" if topology == "replicas" else ""
        fixes = " or ".join(
            TOPOLOGIES[each]
            for each in algorithm.topologies
            if each != "replicas" or topology == "apart"
        )
        raise GeladaError(f"{what} with {type(algorithm).__name__}: not tested; {fixes}")


def _check_replay(experiment: Experiment) -> None:
    """Refuse what a replay buffer, or learning from one, cannot do."""
    memory, shape, algorithm = experiment.replay, experiment.shape, experiment.algorithm
    if is_vector(experiment.games):
        raise GeladaError(
            f"{type(algorithm).__name__} with {experiment.games.game}: a replay buffer keeps "
            "pictures, and this environment shows vectors; take APPO, A3C or PQN"
        )
    if not memory.capacity:
        raise GeladaError(
            f"--capacity 0 with {type(algorithm).__name__}: it learns from a replay buffer; use "
            "100000 or more"
        )
    if experiment.deterministic:
        check_buffer(experiment)
    if shape.learners and shape.replays > shape.actors:
        raise GeladaError(
            f"--replays {shape.replays} with {shape.actors} actors: each replay buffer needs an "
            f"actor that adds to it; use at most {shape.actors}"
        )
    outlier = getattr(algorithm, "outlier", 0.0)
    if outlier and shape.apart and not shape.asynchronous:
        raise GeladaError(
            f"--outlier {outlier:g} without --asynchronous: a step would wait for the gradient "
            "that was dropped"
        )
    each = shape.games * (-(-shape.actors // shape.replays) if shape.learners else shape.actors)
    least = each * (max(shape.length, algorithm.window(shape.length)) + 1)
    if memory.capacity < least:
        raise GeladaError(
            f"--capacity {memory.capacity}: must be at least {least}: {each} games of "
            f"{shape.length} steps at once"
        )
    if memory.minimum > memory.capacity:
        raise GeladaError(
            f"--minimum {memory.minimum}: must not be above --capacity {memory.capacity}: the "
            "buffer would never be full enough to learn from"
        )


def _check_autoencoder(experiment: Experiment) -> None:
    """Refuse an autoencoder with an algorithm that has no loss for it, or without pixels."""
    form, algorithm = experiment.network.autoencoder, experiment.algorithm
    predicts = isinstance(algorithm, DQN) and form == "predict"
    if form != "off" and not isinstance(algorithm, APPO) and not predicts:
        raise GeladaError(
            f"--autoencoder {form} with {type(algorithm).__name__}: only APPO has a loss for it"
            f"{', and DQN for predict' if form == 'predict' else ''}; "
            "leave it out, or take a preset with APPO, such as ppo-pong"
        )
    if isinstance(algorithm, DQN) and predicts and algorithm.returns == "n_step":
        raise GeladaError(
            "--autoencoder predict with --returns n_step: it predicts what follows in a window, "
            "and n-step returns look at its ends only; use --returns q_lambda"
        )
    if form in PIXELS and is_vector(experiment.games):
        raise GeladaError(
            f"--autoencoder {form} with {experiment.games.game}: it gives vectors and no pixels; "
            "use --autoencoder predict"
        )


def _check_frames(experiment: Experiment) -> None:
    """Refuse frames, or the latent pictures of them, that are too small for the torso."""
    torso, settings = experiment.network.torso, experiment.games
    if experiment.network.own_torso:
        return
    atari = is_atari(settings.game)
    height, width = frame_shape(settings)
    height //= planes(settings)
    side = settings.size if atari else min(height, width)
    need = smallest_side(torso)
    instead = "mlp" if is_vector(settings) else "tiny"
    if side < need and not atari:
        raise GeladaError(
            f"--torso {torso}: needs frames of at least {need}x{need}, those of "
            f"{settings.game} are {height}x{width}; take --torso {instead}"
        )
    if side < need:
        raise GeladaError(f"--size {side}: the torso {torso!r} needs at least {need}")
    form = experiment.network.autoencoder
    if form in PIXELS:
        _check_half(form, torso, side, need if form == "latent" else 1, atari)


def _check_half(form: str, torso: str, side: int, need: int, atari: bool) -> None:
    """Raise GeladaError if half of a frame's shorter side is less than what is needed."""
    if side // STRIDE < need:
        larger = f"use --size {STRIDE * need} or more" if atari else "take --torso tiny"
        raise GeladaError(
            f"--autoencoder {form}: half of {side} pixels is too small for the torso {torso!r}, "
            f"which needs {need}; {larger}, or another form"
        )


def check_buffer(experiment: Experiment) -> None:
    """Check the replay buffer of a deterministic run.

    Raises:
        GeladaError: if what is sampled would depend on who is faster, or a flag would do nothing.
    """
    if experiment.shape.apart:
        raise GeladaError(
            "--deterministic with a replay buffer and several learners: what is sampled depends on "
            "who is faster; leave it out, or use a single learner"
        )
    if not experiment.replay.samples_per_insert:
        raise GeladaError(
            "--deterministic with a replay buffer: how much is sampled depends on who is faster; "
            "give --samples-per-insert"
        )
    if experiment.replay.keep:
        raise GeladaError(
            "--keep with --deterministic: the replay buffer is saved with every checkpoint there; "
            "leave it out"
        )
    if getattr(experiment.algorithm, "outlier", 0.0):
        raise GeladaError(
            "--outlier with --deterministic: actors count versions, and a dropped gradient makes "
            "none; use --outlier 0"
        )
