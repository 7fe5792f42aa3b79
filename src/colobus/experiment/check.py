"""Checks of an experiment: what is wrong is said before anything is started.

Types and ranges stand beside the fields (`colobus.core.fields`), and the rules of a part beside its
settings; here are those between games, network and algorithm, and what has an effect at all.
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from functools import partial
from typing import Any

from colobus.algorithms.api import LEARNING_RATE
from colobus.core.errors import ColobusError
from colobus.core.fields import OnlyWith, given, hints_of, only_with, read, shown
from colobus.core.fields import check as check_fields
from colobus.envs.make import agents, environment_of, is_atari, is_gym, is_vector, makes_vectors
from colobus.experiment.settings import Experiment, algorithm_name, flag, groups_of
from colobus.experiment.shape import Beside
from colobus.nets.autoencoder import STRIDE
from colobus.nets.config import PIXELS
from colobus.nets.torsos import smallest_side
from colobus.ops.distributions import FEWEST_BINS


def check_recurrent(experiment: Experiment) -> None:
    """Refuse a memory that the algorithm cannot train, and sequences that do not fit."""
    if experiment.network.recurrent == "none":
        return
    algorithm, length = experiment.algorithm, experiment.shape.length
    minibatch = algorithm.minibatch
    sequence = getattr(algorithm, "sequence", 1)
    if not algorithm.learns_sequences:
        raise ColobusError(
            f"--recurrent lstm with {type(algorithm).__name__}: it does not learn from "
            "sequences; leave it out, or take a preset with APPO, such as ppo-pong"
        )
    if length % sequence:
        fits = max(n for n in range(1, sequence) if length % n == 0)
        raise ColobusError(
            f"--length {length} with --sequence {sequence}: must be a multiple of it; use --length "
            f"{-(-length // sequence) * sequence} or --sequence {fits}"
        )
    if minibatch < sequence:
        raise ColobusError(
            f"--minibatch {minibatch}: must not be below --sequence {sequence}, as a minibatch has "
            "whole sequences; raise it or lower the other"
        )


def check_agents(experiment: Experiment) -> None:
    """Refuse what does not know that a game has several agents."""
    algorithm, name = experiment.algorithm, experiment.games.game
    kind = type(algorithm).__name__
    if agents(experiment.games) > 1 and "central" not in algorithm.topologies:
        raise ColobusError(f"{name} with {kind}: it has several agents; take a preset with APPO")
    if agents(experiment.games) > 1 and algorithm.source == "buffer":
        raise ColobusError(
            f"{name} with {kind}: a replay buffer keeps games of one agent; take a preset with APPO"
        )
    if experiment.network.policies != "separate":
        return
    shape, count = experiment.shape, agents(experiment.games)
    windows = shape.windows // shape.topology.queues
    if shape.batch and windows % count:
        fits = max(windows // count, 1) * count * shape.topology.queues * shape.length
        raise ColobusError(
            f"--batch {shape.batch} with --policies separate: {windows} windows of a queue cannot "
            f"be shared equally by {count} agents; use {fits}"
        )
    if not algorithm.learns_sequences:
        raise ColobusError(
            f"--policies separate with {kind}: not tested; leave it out, or take a preset with APPO"
        )


ATARI = OnlyWith("in Atari games", lambda experiment: is_atari(experiment.games.game))

GYM = OnlyWith("in environments of Gymnasium", lambda experiment: is_gym(experiment.games.game))

ACROSS: dict[str, OnlyWith] = {
    "games": ATARI,
    "games.env_kwargs": GYM,
    "games.observe": GYM,
    "shape.emulators": ATARI,
    "shape.env_processes": OnlyWith(
        "in environments of Gymnasium, and not with a function that makes vectors",
        lambda experiment: is_gym(experiment.games.game) and not makes_vectors(experiment.games),
    ),
    "shape.batch": OnlyWith(
        "with APPO, PQN or A3C: the batch of DQN has --windows",
        lambda experiment: experiment.algorithm.source != "buffer",
    ),
    "shape.ahead": OnlyWith(
        "with APPO, PQN or A3C: with a replay buffer actors never wait for a version",
        lambda experiment: experiment.algorithm.source != "buffer",
    ),
    "replay": OnlyWith(
        "with an algorithm that learns from each step again, such as the DQN of apex-pong",
        lambda experiment: experiment.algorithm.source == "buffer",
    ),
    "network.policies": OnlyWith(
        "in a game of several agents, such as catch-pair",
        lambda experiment: agents(experiment.games) > 1,
    ),
    "algorithm.anneal_share": OnlyWith(
        "with --anneal-steps above 0 and --steps or --minutes (only --steps with --deterministic "
        "or --reduce group, which follow no clock)",
        lambda experiment: (
            experiment.algorithm.anneal_steps > 0
            and experiment.budget.ends
            and experiment.budget == experiment.stop
        ),
    ),
    "algorithm.hold_after": OnlyWith("with --games 2 or more", lambda own: own.shape.games > 1),
    "algorithm.sequence": OnlyWith(
        "with --recurrent lstm", lambda experiment: experiment.network.recurrent != "none"
    ),
}
"""Groups and settings that have an effect only because of another group."""


def check(experiment: Experiment) -> None:
    """Raise ColobusError for the first setting that cannot be; it names value, rule and fix."""
    for group, settings in groups_of(experiment).items():
        check_fields(settings, partial(flag, group=group))
    for name in ("seed", "deterministic"):
        read(hints_of(Experiment)[name], getattr(experiment, name), flag, name)
    if experiment.sidecars.every and experiment.tracker.keep_checkpoints:
        raise ColobusError(
            "--every: checkpoints would be deleted before their turn; add --keep-checkpoints 0"
        )
    if experiment.stop.until_evaluated is not None and not experiment.sidecars.evaluator:
        goal = shown(experiment.stop.until_evaluated)
        raise ColobusError(f"--until-evaluated {goal}: the run has no evaluator; add --evaluator")
    shape, topology = experiment.shape, experiment.shape.topology
    beside = Beside(experiment.algorithm, experiment.games, experiment.deterministic)
    experiment.replay.check(beside, topology)
    topology.check(beside)
    experiment.reuse.check(beside, topology)
    rows = 1 if shape.batch else agents(experiment.games)  # --batch counts each agent's steps
    experiment.algorithm.check(shape.datapoints * rows)
    if LEARNING_RATE not in experiment.algorithm.start():
        raise ColobusError(
            f"{type(experiment.algorithm).__name__}: has no learning rate; give its `ends` a line "
            f"{LEARNING_RATE!r}: (start, end)"
        )
    check_recurrent(experiment)
    check_agents(experiment)
    _check_bins(experiment)
    _check_autoencoder(experiment)
    _check_frames(experiment)


def check_effect(experiment: Experiment, base: Experiment) -> None:
    """Raise ColobusError if a setting differs from ``base`` and has no effect in the experiment."""
    for group, name in _changed(experiment, base):
        settings, before = (getattr(one, group, one) for one in (experiment, base))
        kind: Any = type(settings)
        rules = [(only_with(hints_of(kind)[name]), settings)]
        rules.append((ACROSS.get(f"{group}.{name}", ACROSS.get(group)), experiment))
        whats = [rule.what for rule, of in rules if rule and not rule.holds(of)]
        start, value = name.removesuffix("_end"), getattr(settings, name)
        was_constant = start != name and getattr(before, name, None) is None
        if was_constant and value == getattr(settings, start, None):
            whats.insert(0, f"where it differs from {given(flag(start, group), value)}")
        if whats:
            raise ColobusError(f"{given(flag(name, group), value)}: has an effect only {whats[-1]}")


def differing(experiment: Experiment, base: Experiment) -> list[str]:
    """Return the flags of the settings that differ between two experiments."""
    return [flag(name, group) for group, name in _changed(experiment, base)]


def differing_for_good(experiment: Experiment, base: Experiment) -> list[str]:
    """Return the flags of the settings that differ and may not change in a resume."""
    stop, sidecars = experiment.stop, experiment.sidecars
    tracker = replace(experiment.tracker, tags=base.tracker.tags)
    another = algorithm_name(experiment) != algorithm_name(base)  # perhaps of equal settings
    found = differing(experiment, replace(base, stop=stop, tracker=tracker, sidecars=sidecars))
    return ["--algorithm"] * another + found


def check_resumed(
    experiment: Experiment, base: Experiment, resume: str, stop: str, start: str
) -> None:
    """Raise ColobusError if a setting differs that is fixed by the run's config.json.

    Args:
        experiment: as it is asked for.
        base: as the run has it.
        resume: what resumes, in the message.
        stop: what the stop rule is called there.
        start: what begins a new run with the weights of another.
    """
    if fixed := differing_for_good(experiment, base):
        raise ColobusError(
            f"{', '.join(fixed)} with {resume}: a run's settings are fixed by its config.json; "
            f"only {stop}, checkpoints and sidecars may change; {start} begins a new run with "
            "these weights and other settings"
        )
    own, budget = experiment.algorithm, experiment.budget
    if own.anneal_share and own.anneal_steps and base.budget.ends and not budget.ends:
        only = "--steps" if budget != experiment.stop else "--steps or --minutes"
        raise ColobusError(
            f"{resume} of a run with --anneal-share {own.anneal_share:g}: its schedules are a "
            f"share of {only}; give one, too"
        )


def _changed(experiment: Experiment, base: Experiment) -> list[tuple[str, str]]:
    """Return (group, name) of the settings that differ; the group of single ones is ""."""
    pairs = [("", experiment, base)]
    pairs += [(k, getattr(experiment, k), getattr(base, k)) for k in groups_of(experiment)]
    return [
        (group, name)
        for group, settings, before in pairs
        for name, value in vars(settings).items()
        if not is_dataclass(value) and value != getattr(before, name, None)
    ]


def _check_bins(experiment: Experiment) -> None:
    """Refuse histograms of so few bins that their means are not the returns."""
    bins = getattr(experiment.algorithm, "atoms", FEWEST_BINS)
    if getattr(experiment.algorithm, "values", "") == "histograms" and bins < FEWEST_BINS:
        raise ColobusError(
            f"--atoms {bins} with --values histograms: must be at least {FEWEST_BINS}: means of "
            "fewer bins miss large returns by more than a tenth; use --atoms 51 or "
            "--values quantiles"
        )


def _check_autoencoder(experiment: Experiment) -> None:
    """Refuse an autoencoder with an algorithm that has no loss for it, or without pixels."""
    form, algorithm = experiment.network.autoencoder, experiment.algorithm
    algorithm.check_autoencoder(form)
    if form in PIXELS and is_vector(experiment.games):
        raise ColobusError(
            f"--autoencoder {form} with {experiment.games.game}: it gives vectors and no pixels; "
            "use --autoencoder predict"
        )


def _check_frames(experiment: Experiment) -> None:
    """Refuse frames, or the latent pictures of them, that are too small for the torso."""
    torso, settings = experiment.network.torso, experiment.games
    if experiment.network.own_torso:
        return
    atari = is_atari(settings.game)
    own = environment_of(settings)
    height, width = own.seen_shape
    height //= own.planes
    side = settings.size if atari else min(height, width)
    need = smallest_side(torso)
    instead = "mlp" if is_vector(settings) else "tiny"
    if side < need and not atari:
        raise ColobusError(
            f"--torso {torso}: needs frames of at least {need}x{need}, those of "
            f"{settings.game} are {height}x{width}; take --torso {instead}"
        )
    if side < need:
        raise ColobusError(f"--size {side}: the torso {torso!r} needs at least {need}")
    form = experiment.network.autoencoder
    need = need if form == "latent" else 1
    if form in PIXELS and side // STRIDE < need:
        larger = f"use --size {STRIDE * need} or more" if atari else "take --torso tiny"
        raise ColobusError(
            f"--autoencoder {form}: half of {side} pixels is too small for the torso {torso!r}, "
            f"which needs {need}; {larger}, or another form"
        )


def check_onnx(experiment: Experiment) -> None:
    """Raise ColobusError if actors cannot compute with ONNX Runtime in a run."""
    from colobus.nets.onnx import packages

    net = experiment.network
    unfit = {
        "--deterministic": experiment.deterministic,
        "--recurrent lstm": net.recurrent == "lstm",
        f"--own-torso {net.own_torso}": bool(net.own_torso),
        f"--own-heads {net.own_heads}": bool(net.own_heads),
    }
    for setting, holds in unfit.items():
        if holds:
            why = "it rounds otherwise" if experiment.deterministic else "only torch computes that"
            raise ColobusError(f"--act-with onnx with {setting}: {why}; use --act-with torch")
    packages("--act-with onnx")
