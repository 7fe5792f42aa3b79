"""Stubs in the place of stages: ``python -m benchmarks.lib.stubs pong --dummy emulator,learner``.

With a stage out of the way one sees what the others could do. Nothing learns anything here, and no
rate measured with a stub is one of training. All other flags are those of ``colobus bench``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.lib.faults import Sleeper, taken
from colobus.algorithms.api import Scores
from colobus.cli.bench import Bench
from colobus.cli.experiment_flags import cluster_of, resolve
from colobus.cli.flags import HELP, print_json
from colobus.cli.plan import NoSchedule
from colobus.cli.throughput import steady_rate, trained
from colobus.core.errors import ColobusError
from colobus.core.types import Bools, Bytes, Frames, Ints
from colobus.envs.api import GameSettings, Step
from colobus.envs.make import action_names, agents, frame_shape, is_atari
from colobus.experiment.settings import Experiment
from colobus.roles.actor import Actor
from colobus.roles.learner import Learner
from colobus.roles.parameters.published import Pulled
from colobus.roles.policy import SlicedPolicy
from colobus.roles.schedule import Schedule
from colobus.runtime.graph import RoleGraph, part
from colobus.runtime.groups import Cluster
from colobus.training.start import open_games
from colobus.training.topology import make_graph

EMULATOR, PREDICTOR, LEARNER = "emulator", "predictor", "learner"

KNOWN = (EMULATOR, PREDICTOR, LEARNER)
"""Stages that have a stub."""

READY = 64
"""Steps that are made beforehand and handed out again and again."""

GAME_STEPS = 200
"""Steps of a made-up game on average."""


def parse_dummies(text: str) -> tuple[str, ...]:
    """Return the stages that the words after ``--dummy`` name, in the order of `KNOWN`.

    Raises:
        ColobusError: if one has no stub.
    """
    names = text.split(",")
    if unknown := set(names) - set(KNOWN):
        raise ColobusError(f"--dummy {text}: no stage {unknown}; known: {', '.join(KNOWN)}")
    return tuple(name for name in KNOWN if name in names)


class DummyGames:
    """``len(seeds)`` games of noise that take no time to play and load no emulator.

    Frames, rewards (mostly 0) and ends are random and of the shapes that the real games have. An
    Atari game has all 18 actions here, because its own set is known only to the emulator.
    """

    def __init__(self, settings: GameSettings, seeds: Ints) -> None:
        self.count = len(seeds) * agents(settings)
        self.actions = 18 if is_atari(settings.game) else len(action_names(settings))
        self.action_names = tuple(f"DUMMY {i}" for i in range(self.actions))
        self.frame_shape = frame_shape(settings)
        random = np.random.default_rng(seeds)
        self._steps = [self._make(random) for _ in range(READY)]
        self._next = 0

    def reset(self) -> Bytes:
        """Return first frames, uint8[B, H, W]."""
        return self._steps[0].frames

    def step(self, actions: Ints) -> Step:
        """Return the next ready-made step, whatever the actions int64[B] are."""
        self._next = (self._next + 1) % READY
        return self._steps[self._next]

    def _make(self, random: np.random.Generator) -> Step:
        frames = random.integers(0, 256, (self.count, *self.frame_shape), dtype=np.uint8)
        rewards = random.choice([-1.0, 0.0, 1.0], self.count, p=[0.02, 0.96, 0.02])
        over = random.random(self.count) < 1.0 / GAME_STEPS
        never = np.zeros(self.count, dtype=np.bool_)
        return Step(frames, rewards.astype(np.float32), over, never, over, never)


class DummyPolicy(SlicedPolicy):
    """Gives the scores of its first step again and again, without looking at any frame."""

    _kept: Scores | None = None

    def load(self, pulled: Pulled) -> None:
        """Take nothing over."""

    def evaluate(self, t: int, state: torch.Tensor | None) -> Scores:
        """See `Policy`."""
        self._kept = self._kept or super().evaluate(t, state)
        return self._kept

    def add(self, t: int, frames: Frames, over: Bools) -> None:
        """Do nothing."""


class StepCounter(NoSchedule):
    """A schedule that counts steps and leaves the algorithm's state as it is."""

    def __init__(self, schedule: Schedule) -> None:
        self.algorithm_state, self.steps = schedule.algorithm_state, schedule.steps


def with_dummies(graph: RoleGraph, dummies: Sequence[str]) -> RoleGraph:
    """Return a graph whose learners push gradients of 0, or whose actors evaluate no network.

    Versions go on and parameters stay, and actions are drawn from the scores of a first step.
    """
    nodes = []
    for node in graph.nodes:
        if node.make is Actor and PREDICTOR in dummies:
            policy = part(DummyPolicy, *node.args[2].args[:2])
            node = replace(node, args=(*node.args[:2], policy, *node.args[3:]))
        if node.make is Learner and LEARNER in dummies:
            schedule = part(StepCounter, node.kwargs["schedule"])
            dummy = {"compute": Sleeper(0.0), "schedule": schedule}
            node = replace(node, kwargs=node.kwargs | dummy)
        nodes.append(node)
    return replace(graph, nodes=nodes)


def trained_with(
    dummies: Sequence[str],
    experiment: Experiment,
    seconds: float,
    make: Callable[..., RoleGraph] = make_graph,
    cluster: Cluster | None = None,
) -> list[tuple[float, int]]:
    """Train with stubs for so long, on threads or on Ray; return (seconds, steps) as they went.

    The experiment's stop rule and what it writes do not count.
    """
    games = DummyGames if EMULATOR in dummies else None

    def with_stubs(*args: Any, **kwargs: Any) -> RoleGraph:
        return with_dummies(make(*args, make=games, **kwargs), dummies)

    with patch("colobus.training.start.open_games", partial(open_games, make=games)):
        return trained(experiment, seconds, cluster, None, lambda _: None, with_stubs)[0]


def measure(
    experiment: Experiment, seconds: float, dummies: Sequence[str], cluster: Cluster | None = None
) -> dict[str, Any]:
    """Train with stubs for so long; return ``dummy_steps_per_s`` and what was measured."""
    counts = trained_with(dummies, experiment, seconds, cluster=cluster)
    rate = round(steady_rate(counts), 1)
    return {"game": experiment.games.game, "dummy": list(dummies), "dummy_steps_per_s": rate}


def main(words: Sequence[str]) -> int:
    """Measure what the words ask for, and print it; return the exit code."""
    try:
        text, rest = taken("--dummy", words, ",".join(KNOWN))
        if HELP.isdisjoint(rest):
            dummies = parse_dummies(text)
        else:  # that of all other flags follows
            sys.stdout.write(f"{__doc__}\n")
        wanted = resolve(Bench, "bench", rest, default_game="pong")
        cluster_of(wanted.flags)
        cluster = wanted.flags.cluster if wanted.flags.on == "ray" else None
        result = measure(wanted.experiment, wanted.flags.seconds, dummies, cluster)
    except ColobusError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if wanted.flags.json:
        print_json(result)
        return 0
    sys.stdout.write(
        f"dummy rate, with a stub for the {' and the '.join(dummies)}: "
        f"{result['dummy_steps_per_s']:,.0f} steps/s. So fast is the rest alone; it is no rate of "
        "training.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
