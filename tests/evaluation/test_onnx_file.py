"""Policies as ONNX files, run by ONNX Runtime."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from colobus.algorithms.dqn import DQN
from colobus.algorithms.iqn import IQN
from colobus.core.errors import ColobusError
from colobus.core.functions import name_of
from colobus.core.types import Frames
from colobus.envs.api import GameSettings
from colobus.envs.make import frame_shape
from colobus.evaluation.agent import Agent
from colobus.evaluation.export.onnx_file import compare, export_onnx
from helpers import gym_toys
from helpers.players import BREAKOUT, CATCH, make_agent

pytestmark = pytest.mark.slow

CARTPOLE = GameSettings(game="CartPole-v1")


def memory() -> Any:
    """Return an environment that sees bytes, as the memory of a console."""
    return gym_toys.Shaped(spaces.Box(0, 255, (8,), np.uint8))


BYTES = GameSettings(game=name_of(memory))


def session_of(file: Path) -> Any:
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def noise(agent: Agent, count: int) -> Frames:
    shape = (count, agent.stack, *frame_shape(agent.games))
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


Exported = tuple[Agent, Path]
Files = Callable[[str], Exported]

AGENTS: dict[str, Any] = {
    "small": lambda: make_agent(CATCH),
    "pictures": lambda: make_agent(BREAKOUT, width=32),
    "large pictures": lambda: make_agent(replace(BREAKOUT, size=84), torso="dqn2013", width=16),
    "residual": lambda: make_agent(BREAKOUT, torso="resnet", width=16),
    "recurrent": lambda: make_agent(CATCH, torso="tiny", width=16, recurrent="lstm"),
    "values": lambda: make_agent(CATCH, algorithm=DQN()),
    "quantiles at any shares": lambda: make_agent(CATCH, algorithm=IQN()),
    "vectors": lambda: make_agent(CARTPOLE, torso="mlp", width=16, stack=1),
    "vectors of bytes": lambda: make_agent(BYTES, torso="mlp", width=16, stack=1),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return an agent and its file by the agent's name; each is exported once."""

    @functools.cache
    def make(name: str) -> Exported:
        agent, file = AGENTS[name](), tmp_path_factory.mktemp("onnx") / "policy.onnx"
        export_onnx(agent, file)
        return agent, file

    return make


@pytest.mark.parametrize("name", AGENTS)
def test_it_computes_what_torch_does(name: str, exported: Files) -> None:
    agent, file = exported(name)
    parity = compare(agent, file, 1000)
    assert parity.observations == 1000
    assert parity.difference < 1e-4
    assert parity.same_actions >= 999
    assert [path.name for path in file.parent.iterdir()] == ["policy.onnx"]


@pytest.mark.parametrize("count", [1, 2, 33])
def test_any_number_of_observations(count: int, exported: Files) -> None:
    agent, file = exported("pictures")
    stacks = noise(agent, count)
    (scores,) = session_of(file).run(None, {"observations": stacks})
    assert scores.shape == (count, 4)
    np.testing.assert_array_equal(scores.argmax(axis=1), agent.act(stacks, "greedy"))


def test_a_recurrent_policy_takes_its_state_and_returns_the_next_one(exported: Files) -> None:
    agent, file = exported("recurrent")
    session = session_of(file)
    assert [one.name for one in session.get_inputs()] == ["observations", "state"]
    assert [one.name for one in session.get_outputs()] == ["scores", "next_state"]
    ours = theirs = agent.initial_state(3)
    for step in range(5):
        stacks = noise(agent, 3) // (step + 1)
        _, theirs = session.run(None, {"observations": stacks, "state": theirs})
        _, ours = agent.act(stacks, "greedy", state=ours)
        np.testing.assert_allclose(theirs, ours, atol=1e-5)
    assert np.abs(ours).max() > 0.1


def test_another_network_is_noticed(exported: Files) -> None:
    _, file = exported("pictures")
    agent = make_agent(BREAKOUT, width=32)
    assert compare(agent, file, 16).difference < 1e-4
    with torch.no_grad():
        dict(agent.net.named_parameters())["torso.hidden.weight"][0] += 0.1
    assert compare(agent, file, 16).difference > 1e-2
    with torch.no_grad():
        dict(agent.net.named_parameters())["torso.hidden.weight"][0] = torch.nan
    assert np.isnan(compare(agent, file, 16).difference)


def test_the_file_says_what_it_is_of(exported: Files) -> None:
    _, file = exported("small")
    said = session_of(file).get_modelmeta().custom_metadata_map
    about = json.loads(said["colobus"])
    assert about["game"] == "catch"
    assert about["actions"] == ["LEFT", "STAY", "RIGHT"]
    assert (about["scores"], about["policy"], about["stack"]) == ("logits", "sampled", 4)
    assert about["games"]["size"] == 10


@pytest.mark.parametrize("package", ["onnxscript", "onnxruntime"])
def test_a_missing_package(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ColobusError, match=r"pip install 'colobus\[onnx\]'"):
        export_onnx(make_agent(CATCH), tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_game_of_several_agents_is_refused(tmp_path: Path) -> None:
    agent = make_agent(GameSettings(game="catch-pair", size=10))
    with pytest.raises(ColobusError, match="catch-pair has several agents"):
        export_onnx(agent, tmp_path / "policy.onnx")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ColobusError, match=r"cannot write .*policy\.onnx"):
        export_onnx(make_agent(CATCH), tmp_path / "nowhere" / "policy.onnx")
