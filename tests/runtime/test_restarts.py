"""Whole runs of workers in which a role raises once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from conftest import catch, distributed_catch
from gelada.algorithms.a3c import A3C
from gelada.algorithms.appo import APPO
from gelada.core.errors import RoleFailed
from gelada.core.types import Gradient, Version
from gelada.envs.catch import CatchGames
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.parameters.admission import Quorum
from gelada.roles.parameters.server import ParameterServer
from gelada.roles.tracker import Tracker
from outcomes import assert_same, inline, place_threads, run_to_the_end


def fail_once(function: Any, at: int, error: str) -> Any:
    """Return the function that raises at one of its calls, by any thread."""
    lock, calls = threading.Lock(), [0]

    def called(*arguments: Any, **more: Any) -> Any:
        with lock:
            calls[0] += 1
            now = calls[0]
        if now == at:
            raise RuntimeError(error)
        return function(*arguments, **more)

    return called


@pytest.mark.parametrize("where", ["loss", "push", "pull"])
def test_a_learner_that_raises_is_restarted_and_the_run_ends_as_if_nothing_had_been(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    experiment = distributed_catch(20, workers=3)
    oracle = inline(experiment)
    kind: Any = A3C if where == "loss" else ParameterServer
    monkeypatch.setattr(kind, where, fail_once(getattr(kind, where), 31, "by accident"))
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    assert len(lines) == 1
    assert lines[0].startswith("learner-")
    assert lines[0].endswith(": RuntimeError: by accident; restarted (1 of 5)")
    assert found.version == Version(0, 20)
    assert_same(oracle, found)


def test_an_actor_that_raises_is_restarted_and_its_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = distributed_catch(20, workers=3)
    step: Any = CatchGames.step
    monkeypatch.setattr(CatchGames, "step", fail_once(step, 300, "the emulator is gone"))
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    assert len(lines) == 1
    assert lines[0].startswith("actor-")
    assert "RuntimeError: the emulator is gone; restarted (1 of 5)" in lines[0]
    assert found.version == Version(0, 20)
    assert found.status.steps == 504 + 20 * 3 * 72  # the lost trajectory was played anew
    assert found.status.workers is not None
    assert found.status.workers.traffic.dropped == 0


def central(rounds: int, servers: int = 1) -> Any:
    """Return deterministic Catch with one learner, whose rounds have several minibatches."""
    experiment = catch(504 + rounds * 512, deterministic=True)
    return replace(experiment, shape=replace(experiment.shape, servers=servers))


@pytest.mark.parametrize("servers", [1, 3])
def test_a_central_learner_learns_its_round_again(
    monkeypatch: pytest.MonkeyPatch, servers: int
) -> None:
    """An error before the first gradient of a round changes nothing, not a bit."""
    experiment = central(20, servers)
    oracle = inline(experiment)
    loss: Any = APPO.loss
    parts = parts_of(experiment)
    monkeypatch.setattr(APPO, "loss", fail_once(loss, 7 * parts + 1, "by accident"))
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    assert len(lines) == 1
    assert lines[0].startswith("learner-0 raised at ")
    assert_same(oracle, found)


def parts_of(experiment: Any) -> int:
    """Return the minibatches of a round, all epochs together."""
    algorithm, shape = experiment.algorithm, experiment.shape
    batch = shape.actors * shape.games * shape.length
    return int(algorithm.epochs * -(-batch // algorithm.minibatch))


@pytest.mark.parametrize("where", ["loss", "push", "report"])
def test_an_error_in_the_midst_of_a_round_counts_no_step_twice(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    experiment = central(20)
    parts = parts_of(experiment)
    assert parts >= 2
    kind: Any = {"loss": APPO, "push": ParameterServer, "report": Tracker}[where]
    at = 9 if where == "report" else 8 * parts + 2
    monkeypatch.setattr(kind, where, fail_once(getattr(kind, where), at, "by accident"))
    lines: list[str] = []
    found = run_to_the_end(place_threads(experiment, lines))
    assert len(lines) == 1
    oracle = inline(experiment)
    assert (found.version, found.status.steps) == (oracle.version, oracle.status.steps)
    assert bool(found.parameters.isfinite().all())
    assert not torch.equal(found.parameters, torch.zeros_like(found.parameters))


def test_a_server_goes_back_to_what_it_published_and_takes_all_parts_again() -> None:
    values = torch.arange(64, dtype=torch.float32)
    server = ParameterServer(values, OptimizerSettings(), Quorum(1), Version(0, 3))
    before = values.clone()

    def push(part: int) -> bool:
        gradient = torch.full((64,), float(part + 1))
        return server.push(Gradient(0, Version(0, 3), part, 3, 1, 0.0, 0.1, gradient)).counted

    assert push(0)
    assert push(1)
    assert not torch.equal(values, before)
    assert server.go_back(Version(0, 3))
    assert torch.equal(values, before)
    assert [push(part) for part in range(3)] == [True, True, True]
    assert server.pull().version == Version(0, 4)
    after = values.clone()
    assert not server.go_back(Version(0, 3))  # the round is closed
    assert torch.equal(values, after)


def test_a_learner_whose_servers_stand_at_several_versions_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = central(20, servers=3)
    at = 3 * parts_of(experiment) * 5 - 1  # the last but one server of a round's last gradient
    push: Any = ParameterServer.push
    monkeypatch.setattr(ParameterServer, "push", fail_once(push, at, "by accident"))
    place = place_threads(experiment, [])
    place.start()
    while not place.wait(0.1):
        pass
    place.stop()
    assert isinstance(place.failure, RoleFailed)
    assert "by accident" in str(place.failure)
