"""Inline: a fixed order in the calling thread."""

from __future__ import annotations

import threading

import pytest
import torch

from conftest import catch
from gelada.core.errors import Deadline
from gelada.core.timing import Clock
from gelada.experiment.settings import Shape
from gelada.runtime.graph import Graph
from gelada.runtime.threads import Inline
from gelada.training.start import begin
from gelada.training.topology import make_graph

LOG: list[tuple[str, int]] = []


class Counter:
    def __init__(self, name: str, limit: int) -> None:
        self.name, self.limit = name, limit
        self.clock, self.finished = Clock(), False
        self.steps = 0

    def step(self) -> None:
        assert threading.current_thread() is threading.main_thread()
        LOG.append((self.name, torch.get_num_threads()))
        self.steps += 1
        self.finished = self.steps == self.limit


def test_active_roles_step_in_turn_until_one_has_finished() -> None:
    LOG.clear()
    graph = Graph()
    for name, limit in [("a", 9), ("b", 2), ("c", 9)]:
        graph.add(name, "actor", "main", Counter, name, limit)
    torch.set_num_threads(2)
    Inline(graph).run()
    want = [(name, 1) for name in "abcabc"]
    assert want == LOG
    assert torch.get_num_threads() == 2


def test_a_wait_that_would_never_end_is_an_error() -> None:
    experiment = catch(10_000, shape=Shape(actors=2, games=2, length=8, random_steps=64, ahead=1))
    graph = make_graph(experiment, begin(experiment), None, patience=0.0)
    place = Inline(graph)
    for actor in place.active[:-1]:
        actor.step()
        actor.step()
        with pytest.raises(Deadline, match="no parameters of version 1"):
            actor.step()  # the learner would have to go first
    place.active[-1].step()
    assert place.roles["server-0"].pull().version.number == 1
