"""Stubs in the place of stages: they do nothing, and all else goes on as ever."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.lib.faults import Sleeper
from benchmarks.lib.stubs import LEARNER, PREDICTOR, main, measure, parse_dummies, trained_with
from colobus.algorithms.api import Scores
from colobus.core.errors import ColobusError
from colobus.envs.make import make_games
from colobus.experiment.settings import Experiment
from colobus.ops.flat import FlatParameters
from colobus.roles.policy import Policy
from colobus.runtime.graph import RoleGraph
from colobus.training.start import begin, make_network
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, short_pong
from helpers.ray_runs import ROOT, variables

PONG = short_pong(1)


def test_words_after_stub() -> None:
    assert parse_dummies("emulator") == ("emulator",)
    assert parse_dummies("learner,emulator") == ("emulator", "learner")
    for text in ("lerner", "emulator,act", "emulator,", ""):
        with pytest.raises(ColobusError, match=f"^--dummy {text}: no stage .*known: emulator, p"):
            parse_dummies(text)


def test_missing_words_are_a_line_and_help_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["catch"], ["catch", "--dummy"], ["--dummy", "", "catch"]):
        assert main(words) == 2
        assert re.fullmatch(
            r"--dummy .*emulator,? ?predictor,? ?learner\n", capsys.readouterr().err
        )
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert "--dummy emulator,learner" in said
    assert "--seconds" in said


@pytest.mark.slow
def test_with_a_stub_emulator_no_game_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an emulator was loaded")

    monkeypatch.setattr("colobus.envs.atari.ALEVectorInterface", refuse)
    with pytest.raises(AssertionError, match="an emulator was loaded"):
        trained_with((), PONG, 1.0)
    result = measure(PONG, 1.5, ("emulator",))
    assert result["dummy"] == ["emulator"]
    assert result["dummy_steps_per_s"] > 0


def roles_of(experiment: Experiment, *dummies: str) -> dict[str, Any]:
    """Train with stubs, on a busy machine for longer; return the roles as they ended."""
    found: dict[str, Any] = {}

    class Kept(RoleGraph):
        def build(self, *args: Any) -> dict[str, Any]:
            found.update(super().build(*args))
            return found

    def make(*args: Any, **kwargs: Any) -> RoleGraph:
        return Kept(make_graph(*args, **kwargs).nodes)

    for seconds in (2.0, 8.0, 32.0):
        trained_with(dummies, experiment, seconds, make)
        if found["learner-0"].clock.steps >= 2:
            break
    return found


def first_values(experiment: Experiment) -> torch.Tensor:
    """Return the parameters that a run begins with: they come from the seed."""
    games = [make_games(experiment.games, np.arange(1, experiment.shape.games + 1))]
    shape = replace(experiment.shape, actors=1, workers=min(experiment.shape.workers, 1))
    start = begin(replace(experiment, shape=shape), games)
    return FlatParameters(make_network(experiment, start)).values


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pong", "catch", "workers"])
def test_with_a_stub_learner_versions_go_on_and_parameters_stay(name: str) -> None:
    workers = replace(distributed_catch(1), deterministic=False)
    experiment = {"pong": PONG, "catch": catch(1), "workers": workers}[name]
    roles = roles_of(experiment, LEARNER)
    learner = roles["learner-0"]
    assert isinstance(learner.compute, Sleeper)
    version = roles["server-0"].state()[0].version.number
    assert version >= 2
    servers = [role for name, role in roles.items() if name.startswith("server-")]
    values = torch.cat([server.state()[0].values for server in servers])
    assert torch.equal(values, first_values(experiment))
    if name != "workers":  # there the two learners' gradients make a version together
        assert version == learner.clock.steps
        first = experiment.shape.random_steps
        status = roles["tracker"].status()
        assert status.steps == first + version * experiment.shape.datapoints


@pytest.mark.slow
def test_with_a_stub_predictor_no_network_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of the first step are given again: one evaluation for each of the actors."""
    asked: list[int] = []
    act = Policy._act

    def count(self: Policy, stacks: torch.Tensor, state: torch.Tensor | None) -> Scores:
        asked.append(len(stacks))
        return act(self, stacks, state)

    monkeypatch.setattr(Policy, "_act", count)
    roles = roles_of(catch(1), PREDICTOR, LEARNER)
    assert len(asked) == sum(name.startswith("actor-") for name in roles)
    assert roles["learner-0"].clock.steps >= 2


ON_RAY = """
import sys
from dataclasses import replace

sys.path.insert(0, {ROOT!r})
from benchmarks.lib.stubs import KNOWN, trained_with
from colobus.experiment.presets import preset
from colobus.runtime.groups import Cluster
from colobus.training.topology import make_graph


def make(*args, **kwargs):
    # this process cannot load games, nor learn, nor ask a network twice
    from colobus.envs import atari
    from colobus.roles.backprop import Backprop
    from colobus.roles.policy import Policy

    asked, act = [], Policy._act

    def once(*inputs):
        asked.append(inputs)
        assert len(asked) == 1, "a network was asked again"
        return act(*inputs)

    atari.ALEVectorInterface = Backprop.run = None
    Policy._act = once
    return make_graph(*args, **kwargs)


if __name__ == "__main__":
    pong, _ = preset("dba3c-pong")
    pong = replace(pong, shape=replace(pong.shape, workers=2, servers=1, quorum=0))
    counts = trained_with(KNOWN, pong, float(sys.argv[1]), make, Cluster(cpus=0.2))
    print(counts[-1][1] - counts[0][1])
"""


@pytest.mark.cluster
def test_on_ray_stubs_are_in_all_processes(tmp_path: Path) -> None:
    script = tmp_path / "stubbed.py"
    script.write_text(ON_RAY.replace("{ROOT!r}", repr(ROOT)))
    for seconds in (12, 40, 120):  # with the start of all processes
        words = [sys.executable, str(script), str(seconds)]
        done = subprocess.run(words, env=variables(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if int(done.stdout) > 0:
            break
    assert int(done.stdout) > 0
