"""Whole runs in miniature: compared bit for bit by several tests, or learning to a score."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from colobus.core.checkpoint import Checkpoint, newest_checkpoint
from colobus.core.errors import Deadline
from colobus.core.types import Batch, Version
from colobus.experiment.settings import Experiment
from colobus.roles.learner import Learner
from colobus.roles.tracker import Status, TrackerSettings
from colobus.runtime.devices import torch_threads
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import ProcessSpec, group_processes
from colobus.runtime.threads import Threads, threads_of
from colobus.training.run import Result, train
from colobus.training.start import begin, open_games
from colobus.training.topology import make_graph
from helpers.launching import LONG

MakeGraph = Callable[..., RoleGraph]

NO_EVENTS = TrackerSettings(tensorboard=False)


class Inline:
    """Calls ``step`` of active roles in the order of the graph, in this thread.

    A deterministic run on threads or on Ray must give the same parameters as here. Passive roles
    must have a patience of 0, so that a wait that would never end raises `Deadline`. Nothing is
    restarted, and what a role raises is raised here.
    """

    def __init__(self, graph: RoleGraph) -> None:
        self.roles = graph.build()
        self.active = [role for role in self.roles.values() if hasattr(role, "step")]

    def run(self) -> None:
        """Let all roles take turns until one of them has finished."""
        while not any(role.finished for role in self.active):
            self.take_turns()

    def take_turns(self) -> None:
        """Call ``step`` of each active role once."""
        for role in self.active:
            with torch_threads(threads_of(role)):
                role.step()


class Outcome(NamedTuple):
    version: Version
    parameters: torch.Tensor  # float32[P]
    optimizer: dict[str, torch.Tensor]
    algorithm_state: dict[str, torch.Tensor]  # empty with workers and where the learner is remote
    status: Status


def outcome(roles: Mapping[str, Any]) -> Outcome:
    """Return what the servers, the first learner and the tracker hold at the end."""
    servers = [role for name, role in roles.items() if name.startswith("server")]
    states = [server.state() for server in servers]
    (version,) = {params.version for params, _ in states}
    optimizer = {
        name: torch.cat([state[name] for _, state in states]) if tensor.dim() else tensor
        for name, tensor in states[0][1].items()
    }
    parameters = torch.cat([params.values for params, _ in states])
    learner, tracker = roles["learner-0"], roles["tracker"]
    local = isinstance(learner, Learner) and "cache-0" not in roles
    algorithm_state = learner.schedule.algorithm_state if local else {}
    return Outcome(version, parameters, optimizer, algorithm_state, tracker.status())


def spread(experiment: Experiment, per_process: int = 1) -> tuple[RoleGraph, list[ProcessSpec]]:
    """Return the graph of a run in several processes, and these."""
    graph = make_graph(experiment, begin(experiment), None, spread=True)
    return graph, group_processes(graph, per_process)


def place_inline(
    experiment: Experiment, make: MakeGraph = make_graph, folder: Path | None = None, **more: Any
) -> Inline:
    games = open_games(experiment)
    start = begin(experiment, games)
    return Inline(make(experiment, start, folder, patience=0.0, games=games, **more))


def go_on(place: Inline, until: Callable[[], bool]) -> None:
    """Let all roles take turns; one that would have to wait for another lets the next go on."""
    while not until():
        for role in place.active:
            with suppress(Deadline):
                role.step()


def batches_of(replay: Any) -> list[Batch]:
    """Return the list into which all batches go that are sampled from now on."""
    batches: list[Batch] = []
    sample = replay.sample

    def keep(*given: Any) -> Batch:
        batches.append(sample(*given))
        return batches[-1]

    replay.sample = keep
    return batches


def inline(experiment: Experiment, make: MakeGraph = make_graph) -> Outcome:
    place = place_inline(experiment, make)
    place.run()
    return outcome(place.roles)


def place_threads(
    experiment: Experiment, lines: list[str], make: MakeGraph = make_graph, **more: Any
) -> Threads:
    games = open_games(experiment)
    start = begin(experiment, games)
    graph = make(experiment, start, None, patience=60.0, games=games, **more)
    return Threads(graph.build(), log=lines.append)


def run_to_the_end(place: Threads) -> Outcome:
    place.start()
    until = time.monotonic() + LONG
    while not place.wait(0.1):
        place.check()
        assert time.monotonic() < until, [(role.name, role.stage) for role in place.states()]
    place.check()
    assert place.stop() == []
    return outcome(place.roles)


def threads(experiment: Experiment) -> Outcome:
    lines: list[str] = []
    result = run_to_the_end(place_threads(experiment, lines))
    assert lines == []
    return result


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def assert_same(one: Outcome, other: Outcome) -> None:
    """Bit for bit, scores and losses too."""
    assert one.version == other.version
    assert torch.equal(one.parameters, other.parameters)
    assert equal(one.optimizer, other.optimizer)
    assert equal(one.algorithm_state, other.algorithm_state)
    for name in ("steps", "version", "games", "score", "best", "best_game", "values", "lag"):
        assert getattr(one.status, name) == getattr(other.status, name), name


def finished(folder: Path) -> tuple[Checkpoint, list[dict[str, Any]]]:
    """Return the last checkpoint and the metrics of a run, without what depends on the time.

    The line that only the end of a run makes is left out.
    """
    _, checkpoint, passed_over = newest_checkpoint(folder / "checkpoints")
    assert passed_over == []
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in (*lines, checkpoint.counters):
        del line["seconds"]
    for name in ("peak", "marks", "evaluated"):  # of checkpoints, which are written at times
        del checkpoint.counters[name]
    return checkpoint, [line for line in lines if line["version"] % 10 == 0]


def episodes_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of all games that were learned from, without what depends on the time."""
    text = (folder / "episodes.jsonl").read_text()
    return [{**json.loads(line), "seconds": 0.0} for line in text.splitlines()]


def assert_same_run(one: Path, other: Path) -> None:
    """Parameters, optimizer, actors with their games, scores and all lines: bit for bit."""
    (mine, my_lines), (theirs, their_lines) = finished(one), finished(other)
    assert mine.version.number == theirs.version.number
    assert mine.steps == theirs.steps
    assert mine.counters == theirs.counters
    assert mine.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        assert torch.equal(mine.tensors[name], tensor), name
    assert my_lines == their_lines
    assert episodes_of(one) == episodes_of(other)
    for path in sorted((other / "stores").rglob("*.safetensors"))[-1:]:
        assert path.read_bytes() == (one / path.relative_to(other)).read_bytes(), path


def learn(
    experiment: Experiment, folder: Path, score: float = 0.9, steps: int = 150_000, **more: Any
) -> Result:
    """Train; the mean of 50 games, at random -0.6, must reach ``score`` before so many steps."""
    given = {"log": lambda _: None} | more
    result = train(replace(experiment, tracker=NO_EVENTS), folder, **given)
    assert not result.interrupted
    assert result.status.best is not None
    assert result.status.best >= score
    assert result.status.steps < steps
    return result


def learn_in_turns(experiment: Experiment, steps: int = 150_000) -> Status:
    """Train with roles that take turns, so that a seed gives the same run each time (`learn`)."""
    place = place_inline(replace(experiment, tracker=NO_EVENTS))
    go_on(place, lambda: any(role.finished for role in place.active))
    status: Status = place.roles["tracker"].status()
    assert status.best is not None
    assert status.best >= 0.9
    assert status.steps < steps
    return status
