"""Warm starts: what is taken over from another run, what is new, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import colobus
from colobus.core.checkpoint import list_checkpoints, newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.evaluation.export.hub import export_folder
from colobus.evaluation.films.milestones import milestones
from colobus.experiment.settings import settings
from colobus.ops.flat import Layout
from colobus.runs.config import read_config
from colobus.training.start import begin, make_network
from colobus.training.topology import make_graph
from colobus.training.warm import read_weights
from helpers import gym_toys
from helpers.launching import QUIET, printed, refused
from helpers.launching import colobus as program


class Further(gym_toys.Walk):
    action_space = spaces.Discrete(3)


class Wider(gym_toys.Walk):
    observation_space = spaces.Box(-9, 9, (3,), np.float32)

    def _seen(self) -> Any:
        return [*super()._seen(), 0.0]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a walk, with a hidden layer of 24."""
    folder = tmp_path_factory.mktemp("source") / "run"
    colobus.train(make_env=gym_toys.Walk, out=folder, steps=2_000, width=24, **QUIET)
    for path in list_checkpoints(folder / "checkpoints")[:-1]:  # one may be better, by luck
        path.unlink()
        path.with_suffix(".json").unlink()
    return folder


STILL: dict[str, Any] = {"steps": 1, "lr": 1e-30, "kl_adjust": 1.0}
"""An update that moves nothing."""


@pytest.mark.parametrize(
    ("env", "actions", "new"),
    [(gym_toys.Walk, 2, []), (Further, 3, ["heads.policy.weight", "heads.policy.bias"])],
)
def test_weights_and_statistics_are_taken_over_but_for_heads_of_other_actions(
    env: Any, actions: int, new: list[str], source: Path, tmp_path: Path
) -> None:
    run, lines = tmp_path / "run", list[str]()
    more = QUIET | {"log": lines.append} | STILL
    colobus.train(make_env=env, out=run, from_run=source, actors=1, **more)
    found, theirs = (newest_checkpoint(each / "checkpoints")[1] for each in (run, source))
    ours, last = found.group("parameter"), theirs.group("parameter")
    assert {name for name in last if not torch.equal(ours[name], last[name])} == {*new}
    assert ours["heads.policy.weight"].shape == (actions, 24)
    for name in ("mean", "deviation"):
        assert torch.equal(found.group("input")[name], theirs.group("input")[name])
    assert found.version == (0, 1)
    config = read_config(run)
    assert found.steps == config.experiment.shape.datapoints  # none random
    assert config.experiment.network.width == 24
    assert config.experiment.shape.actors == 1
    said = f"beginning with the weights of {source} after {theirs.steps:,} steps"
    said += f"; new: {', '.join(new)}" if new else ""
    assert said in lines
    assert config.about["from"] == said
    assert [one.name for one in milestones(run)] == ["before", "after"]


def test_another_algorithm_has_heads_of_its_own(source: Path, tmp_path: Path) -> None:
    words = ("--env", f"{gym_toys.__name__}:Walk", "--from", source, "--steps", 300, "--no-finish")
    out = printed("train", "a3c-CartPole-v1", *words, "--out", tmp_path / "a3c")
    assert "new: heads" not in out  # A3C's are those of APPO
    out = printed("train", "pqn-CartPole-v1", *words, "--out", tmp_path / "pqn")
    assert "new: heads.q.weight, heads.q.bias" in out


def test_without_a_name_all_settings_are_those_of_the_run(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--from", source, "--lr", 0.003, "--steps", 300, "--no-finish")
    printed("train", *words, "--out", run)
    ours, theirs = read_config(run), read_config(source)
    assert ours.name == theirs.name
    assert ours.experiment.network == theirs.experiment.network
    assert settings(ours.experiment)["lr"] == 0.003
    assert ours.about["run"] != theirs.about["run"]
    again = colobus.train(from_run=source, out=tmp_path / "again", steps=300, **QUIET)
    assert read_config(again.folder).experiment.network == theirs.experiment.network


@pytest.mark.slow
@pytest.mark.parametrize("other", [{"values": "quantiles"}, {"limit": 5.0}])
def test_heads_whose_outputs_mean_something_else_are_new(tmp_path: Path, other: Any) -> None:
    """Histograms, quantiles and histograms of other returns have as many outputs for an action."""
    more = QUIET | {"values": "histograms", "returns": "q_lambda", "length": 8, "width": 8}
    more |= {"steps": 200, "minimum": 100, "capacity": 1_000, "windows": 4, "actors": 1, "games": 2}
    first = colobus.train("dqn-catch", tmp_path / "first", random_steps=0, **more)
    for own, new in (({}, ""), (other, "; new: heads.q.advantage.weight, heads.q.advantage.bias")):
        folder = tmp_path / f"then{new[:5]}"
        run = colobus.train("dqn-catch", folder, from_run=first.folder, **more | own)
        assert read_config(run.folder).about["from"].partition(" steps")[2] == new


def test_heads_of_each_agent_are_new_where_those_of_one_would_be(tmp_path: Path) -> None:
    more = QUIET | {"policies": "separate", "steps": 300, "width": 8, "games": 2, "length": 16}
    more |= {"minibatch": 64}
    first = colobus.train("catch-pair", tmp_path / "first", values="quantiles", **more)
    then: dict[str, Any] = {"from_run": first.folder, "values": "histograms"}
    run = colobus.train("catch-pair", tmp_path / "then", **then, **more)
    new = read_config(run.folder).about["from"].partition("; new: ")[2].split(", ")
    assert new == [
        f"heads.value.of_agent.{agent}.{name}" for agent in (0, 1) for name in ("weight", "bias")
    ]


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_exported_folders_and_checkpoints(source: Path, tmp_path: Path, weights: Any) -> None:
    folder = tmp_path / "exported"
    export_folder(colobus.load(source), source, folder, weights, protocol=None, film_seconds=0)
    for place in (folder, list_checkpoints(source / "checkpoints")[-1]):
        run = tmp_path / f"from-{place.name}"
        colobus.train(make_env=gym_toys.Walk, out=run, from_run=place, **STILL, **QUIET)
        found, theirs = (newest_checkpoint(each / "checkpoints")[1] for each in (run, source))
        for name, values in theirs.group("parameter").items():
            close = 0.01 * float(values.abs().max()) if weights == "int8" else 0.0
            assert torch.allclose(found.group("parameter")[name], values, rtol=0.0, atol=close)


@pytest.mark.slow
def test_atari_actions_of_the_same_number_may_be_others(tmp_path: Path) -> None:
    """Demon Attack has the actions of Pong, Qbert as many others, Breakout fewer."""
    small: dict[str, Any] = {"steps": 1, "actors": 1} | QUIET
    colobus.train("ppo-pong", tmp_path / "pong", precision="float32", random_steps=64, **small)
    heads = "; new: heads.policy.weight, heads.policy.bias"
    for game, new in (("demon_attack", ""), ("qbert", heads), ("breakout", heads)):
        run = tmp_path / game
        colobus.train(f"ppo-{game}", run, from_run=tmp_path / "pong", **small)
        assert read_config(run).about["from"].partition(" steps")[2] == new, game
        assert read_config(run).experiment.games.size == 42


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gorila-catch", "iqn-catch", "dba3c-catch", "pqn-catch"])
def test_any_algorithm_begins_with_the_weights_of_its_own(tmp_path: Path, name: str) -> None:
    run = colobus.train(name, tmp_path / "run", steps=5_000, **QUIET).folder
    again = colobus.train(name, tmp_path / "again", from_run=run, steps=1_000, **QUIET)
    assert "new:" not in read_config(again.folder).about["from"]
    weights = read_weights(run, print)
    config = read_config(again.folder)
    start = begin(config.experiment, weights=weights)
    graph = make_graph(config.experiment, start, None, patience=0.0)
    roles = graph.build()
    pulled = torch.cat([roles[name].state()[0].values for name in graph.names("server")])
    named = Layout(make_network(config.experiment, start)).named(pulled)
    taken = weights.checkpoint.playing()  # of the best checkpoint, if the newest is worse
    assert all(torch.equal(named[key], values) for key, values in taken.items())


def test_what_does_not_fit_is_one_line(source: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(ColobusError, match=r"its agent sees 2 numbers, this run's environment sh"):
        colobus.train(make_env=Wider, out=run, from_run=source, **QUIET)
    nobody = "--random-steps 5000: has an effect only without --from"
    with pytest.raises(ColobusError, match=nobody):
        colobus.train(make_env=gym_toys.Walk, out=run, from_run=source, random_steps=5_000, **QUIET)
    words = ("--from", source, "--no-finish", "--out", run, "--width", 32)
    code, _, err = program("train", *words)
    assert code == 2
    assert "does not fit: torso." in err
    assert err.endswith("; leave out --width\n")
    for more, said in (
        (["--resume", source, "--lr", 0.003], "--from begins a new run with these weights"),
        (["--resume", source, "--from", source], "has an effect only in a new run"),
        (["catch", "--from", "zoo:nothing"], "there is no such agent"),
        (["catch", "--from", tmp_path / "nowhere"], "is no run"),
        (["catch", "--from", source, "--random-steps", 5_000], nobody),
    ):
        assert said in refused("train", *more)
    assert not run.exists()
