"""Whole runs of workers in which a role raises once."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch

from colobus.core.errors import RoleFailed
from colobus.core.types import Gradient, Version
from colobus.envs.catch import CatchGames
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReuseSettings
from colobus.roles.parameters.server import ParameterServer
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.tracker import Tracker
from conftest import catch, distributed_catch, dqn, reshaped
from helpers.outcomes import Outcome, assert_same, place_threads, run_to_the_end, threads
from helpers.servers import server_of

WORKERS = distributed_catch(20, workers=3)


def run_with_an_error(experiment: Experiment, who: str) -> Outcome:
    """Run an experiment in which a method raises once; one line says of whom, and that is all."""
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    (line,) = lines
    assert line.startswith(who)
    assert line.endswith(": RuntimeError: by accident; restarted (1 of 5)")
    return found


def test_an_actor_that_raises_is_restarted_and_its_worker_goes_on(fail_once: Any) -> None:
    fail_once(CatchGames, "step", 300)
    found = run_with_an_error(WORKERS, "actor-")
    assert found.version == Version(0, 20)
    assert found.status.steps == 504 + 20 * 3 * 72  # the lost trajectory was played anew
    assert found.status.workers is not None
    assert found.status.workers.traffic.dropped == 0


CENTRAL = catch(504 + 10 * 512, deterministic=True)
"""One learner, whose rounds have several minibatches."""

RUNS: dict[str, Experiment] = {
    "workers": WORKERS,
    "appo": CENTRAL,
    "three servers": reshaped(CENTRAL, servers=3),
    "broadcast": reshaped(CENTRAL, servers=2, broadcast_every=3),
    "used again": replace(CENTRAL, reuse=ReuseSettings(0.5, 5, 3, "random", ramp_up=True)),
    "dqn": dqn(CENTRAL, prioritized=True),
    "pqn": replace(CENTRAL, algorithm=PRESETS["pqn-catch"].algorithm),
}


@functools.cache
def oracle_of(name: str) -> Outcome:
    return threads(RUNS[name])


BATCH = CENTRAL.shape.actors * CENTRAL.shape.games * CENTRAL.shape.length
PARTS = CENTRAL.algorithm.epochs * -(-BATCH // CENTRAL.algorithm.minibatch)
"""Minibatches of a round, all epochs together."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "where", "at"),
    [
        ("workers", "loss", 31),
        ("workers", "push", 31),
        ("workers", "pull", 31),
        ("workers", "report", 31),
        ("appo", "loss", 7 * PARTS + 1),  # before the first step of a round
        ("appo", "loss", 7 * PARTS + 3),
        ("appo", "push", 7 * PARTS + 3),
        ("appo", "push", 8 * PARTS),  # the step that makes the version
        ("appo", "report", 5),
        ("three servers", "loss", 8 * PARTS),
        ("three servers", "push", 3 * (7 * PARTS + 1) + 2),  # some have stepped, others have not
        ("broadcast", "loss", 8 * PARTS),  # nobody can pull the version before
        ("used again", "loss", 30),
        ("used again", "report", 7),
        ("dqn", "loss", 20),
        ("dqn", "push", 21),
        ("dqn", "update", 22),
        ("pqn", "loss", 20),
    ],
)
def test_a_learner_that_raises_begins_its_round_again_as_if_nothing_had_been(
    fail_once: Any, name: str, where: str, at: int
) -> None:
    experiment, oracle = RUNS[name], oracle_of(name)
    kinds: dict[str, Any] = {"report": Tracker, "update": ReplayBuffer}
    kinds |= {"pull": ParameterServer, "push": ParameterServer}
    fail_once(kinds.get(where, type(experiment.algorithm)), where, at)
    who = "learner-" if name == "workers" else "learner-0 raised at "
    assert_same(oracle, run_with_an_error(experiment, who))


def test_a_server_whose_only_step_was_interrupted_cannot_go_back(fail_once: Any) -> None:
    server = server_of(torch.zeros(64), version=Version(0, 3))
    fail_once(server.optimizer, "step", 1)
    with pytest.raises(RuntimeError, match="by accident"):
        server.push(Gradient(0, Version(0, 3), 0, 1, 1, 0.1, torch.ones(64)))
    assert not server.go_back(Version(0, 3))


def test_a_learner_whose_servers_stand_at_several_versions_ends_the_run(fail_once: Any) -> None:
    # the last but one server of a round's last gradient
    fail_once(ParameterServer, "push", 3 * PARTS * 5 - 1)
    place = place_threads(RUNS["three servers"], [])
    with pytest.raises(RoleFailed, match="by accident"):
        run_to_the_end(place)
    place.stop()
    assert not place.roles["learner-0"].save_last()
