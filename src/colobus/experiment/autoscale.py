"""Cores: how many actors, games and emulator threads suit a machine, and how large a batch is.

The presets suit two cores. `for_cores` changes them for more by a table and a few rules, which
docs/devices.md explains. Nothing is measured here, so the same words give the same run.
"""

from __future__ import annotations

from dataclasses import replace

from colobus.core.errors import ColobusError
from colobus.core.fields import given
from colobus.envs.make import agents, is_atari
from colobus.experiment.settings import Experiment, flag
from colobus.runtime.groups import Cluster

FED = {"small": 4, "tiny": 4, "mlp": 4, "dqn2013": 3}
"""Actors that one learner's thread can follow on a CPU, by torso; with all others it is `HEAVY`."""

HEAVY = 2
"""Actors that one learner can follow if learning takes longer than playing, as it does with the
samples of a replay buffer."""

GAMES = 16
"""Games of an actor whose network is on a GPU: with the rollouts of the presets a trajectory has as
many steps as a batch, so experience is two versions old (with 64 games, eight)."""


CHOSEN = ("actors", "games", "emulators", "batch", "learner_threads")
"""Settings that ``--cores`` chooses."""


def fed(experiment: Experiment) -> int:
    """Return how many actors the experiment's learner can follow on a CPU."""
    network = experiment.network
    if experiment.algorithm.source == "buffer" or network.own_torso:
        return HEAVY
    return FED.get(network.torso, HEAVY)


def for_cores(
    experiment: Experiment, base: Experiment, cores: int, gpu: bool = False
) -> Experiment:
    """Return the experiment with actors, games, emulator threads and batch for so many cores.

    Without a GPU there is an actor for each core but the learner's, as many as the learner can
    follow. With a GPU two actors take turns with it: while one emulates, the network of the other
    is computed; so each may have all cores for its emulator threads.

    A batch has as many steps as in the preset, however many actors fill it. What is sampled from a
    replay buffer does not depend on the actors and stays as it is.

    In a run with workers each of them has so many cores. As many of them as its actors then need
    are torch threads of its learner, so that all are used.

    Args:
        experiment: all settings.
        base: the preset, to find settings that were given besides.
        cores: that the run, or with workers each of them, may use.
        gpu: whether a GPU learns and acts.

    Raises:
        ColobusError: if a setting is given that this chooses, or the run is of another kind.
    """
    shape = experiment.shape
    for name in CHOSEN:
        if getattr(shape, name) != getattr(base.shape, name):
            what = given(flag(name, "shape"), getattr(shape, name))
            raise ColobusError(
                f"--cores {cores} with {what}: both choose it; leave one of them out"
            )
    if shape.learners:
        raise ColobusError(
            f"--cores {cores} in a run with learners: it suits runs with workers or one learner; "
            "leave it out and give --actors and the like"
        )
    if cores <= 2 and not gpu:  # which the presets suit
        return experiment
    batched, sampled = bool(shape.batch), experiment.algorithm.source == "buffer"
    if shape.workers:
        learning = max(cores // (fed(experiment) + 1), 1)
        actors = max(cores - learning, shape.actors)
        found = replace(shape, actors=actors, learner_threads=learning)
        batched = batched or actors > shape.actors
    elif gpu:
        emulators = min(cores, GAMES) if is_atari(experiment.games.game) else shape.emulators
        found = replace(shape, actors=2, games=max(shape.games, GAMES), emulators=emulators)
        batched = True
    else:
        found = replace(shape, actors=max(min(cores - 1, fed(experiment)), shape.actors))
        batched = batched or found.actors > shape.actors
    changes = found != shape or batched != bool(shape.batch)
    if changes and experiment.deterministic and not sampled:
        raise ColobusError(
            f"--cores {cores} with --deterministic: a batch would have the trajectories that come "
            "first, which depends on who is faster; leave one of the two out"
        )
    whole = shape.datapoints * agents(experiment.games)  # --batch counts each agent's steps
    batch = shape.batch or (whole if batched and not sampled else 0)
    return replace(experiment, shape=replace(found, batch=batch))


def cores_of(text: str, usable: int, workers: int = 0, joined: bool = False) -> int:
    """Return the cores that ``--cores`` asks for, with workers for each of them.

    Args:
        text: a whole number, or ``all``.
        usable: cores that this process may use.
        workers: of the run.
        joined: they are on the hosts of a cluster.

    Raises:
        ColobusError: if it is something else, or more than there are.
    """
    if text == "all" and joined and workers:
        raise ColobusError(
            "--cores all with workers on a cluster: give the number of cores that each has, such "
            "as --cores 12"
        )
    if text == "all":
        return max(usable // max(workers, 1), 1)
    if not text.isdecimal() or not text.isascii() or len(text) > 6 or int(text) < 1:
        raise ColobusError(f"--cores {text[:40]}: must be a whole number from 1 on, or all")
    if int(text) * max(workers, 1) > usable and not (joined and workers):
        each = f" for each of {workers} workers" if workers else ""
        fits = max(usable // max(workers, 1), 1)
        raise ColobusError(
            f"--cores {text}{each}: this process may use {usable}; use --cores {fits} or all"
        )
    return int(text)


def with_cpus(cluster: Cluster, cores: int) -> Cluster:
    """Return a cluster whose processes of workers ask for so many CPUs a worker."""
    if cluster.cpus != Cluster().cpus:
        return cluster
    return replace(cluster, cpus=float(cores * cluster.per_process))


def threads_of(experiment: Experiment) -> int:
    """Return how many cores a run can keep busy at most: learners' threads and emulators."""
    shape, topology = experiment.shape, experiment.shape.topology
    emulators = max(shape.emulators, shape.env_processes)
    return topology.learners * shape.learner_threads + topology.players * emulators


def idle(experiment: Experiment, usable: int, gpu: bool = False) -> str:
    """Return a line if a run leaves more than half of the usable cores idle, else ""."""
    used = threads_of(experiment)
    if 2 * used >= usable:
        return ""
    shape = experiment.shape
    suited = not shape.learners and (gpu or fed(experiment) > shape.actors or shape.workers > 0)
    more = "--cores all takes what suits it" if suited else "more actors or workers would use them"
    return f"this process may use {usable} cores, and the run uses {used} of them at most; {more}"
