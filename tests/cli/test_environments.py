"""Environments of Gymnasium on the command line: from training to a film, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colobus.cli.experiment_flags import ExperimentFlags, resolve, resolve_again
from colobus.core.errors import ColobusError
from colobus.core.functions import arguments_of
from colobus.envs.make import frame_shape
from colobus.envs.playing import make_env
from colobus.experiment.check import check
from colobus.experiment.presets import FAMILIES, PRESETS, preset
from colobus.experiment.presets.environments import RECIPES, for_environment
from colobus.runs.config import Config, read_config, write_config
from colobus.training import entry
from helpers.launching import colobus, printed, refused, told

MODULE = """
import gymnasium
from helpers import gym_toys

def make(num_envs):
    return gymnasium.vector.SyncVectorEnv([gym_toys.walk] * num_envs)
"""


@pytest.mark.slow
def test_cart_pole_from_training_to_a_film(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("--steps", 4_000, "--no-tensorboard")
    summary = told("train", "CartPole-v1", "--out", folder, *words)
    assert summary["steps"] >= 4_000
    assert len(summary["evaluation"]["scores"]) == 50
    assert max(summary["evaluation"]["lengths"]) <= 500
    assert Path(summary["film"]).stat().st_size > 1_000
    printed("train", "--resume", folder, "--steps", 6000, "--no-finish")
    config = read_config(folder)
    assert (config.name, config.actions) == ("CartPole-v1", 2)
    assert config.experiment.network.torso == "mlp"
    printed("eval", folder, "--episodes", 3)
    film = tmp_path / "film.gif"
    printed("record", folder, "--out", film, "--seconds", 1)
    assert film.stat().st_size > 1_000
    assert colobus("eval", folder, "--protocol", "noop")[0] == 2


@pytest.mark.slow
def test_a_function_in_a_module_by_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "walks_of_mine.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    words = ("--steps", 3000, "--no-tensorboard", "--random-steps", 256)
    said = printed("train", "--env", "walks_of_mine:make", *words)
    folder = Path("runs/walks_of_mine-make-1")
    assert read_config(folder).name == "walks_of_mine:make"
    assert "walks_of_mine:make cannot be shown: let its function take render_mode" in said
    assert not (folder / "film.mp4").exists()
    (result,) = (folder / "eval").glob("*.json")
    lengths = json.loads(result.read_text(encoding="utf-8"))["lengths"]
    assert set(lengths) <= {2, 3, 4, 5}  # the steps between two games are not counted


def of(*words: str) -> tuple[str, str, str]:
    wanted = resolve(ExperimentFlags, "train", words)
    return wanted.experiment.games.game, wanted.experiment.network.torso, wanted.name


@pytest.mark.slow
def test_what_the_first_word_and_env_mean() -> None:
    assert of("CartPole-v1") == of("--env", "CartPole-v1") == of("--env=CartPole-v1")
    assert of("CartPole-v1") == ("CartPole-v1", "mlp", "CartPole-v1")
    assert of("vector", "--env", "Acrobot-v1") == ("Acrobot-v1", "mlp", "vector-Acrobot-v1")
    assert of("Acrobot-v1") == ("Acrobot-v1", "mlp", "Acrobot-v1")
    grid = "minigrid:MiniGrid-Empty-5x5-v0"
    assert of("--env", grid) == of(grid) == (grid, "mlp", grid)
    assert of("pixels", "--env", grid) == (grid, "mlp", f"pixels-{grid}")
    assert of("pong", "--env", "CartPole-v1") == ("CartPole-v1", "mlp", "pong-CartPole-v1")
    assert of("--env", "breakout") == ("breakout", "pooled", "breakout")
    assert of("pong", "--env", "breakout") == ("breakout", "small", "pong-breakout")
    stop = resolve(ExperimentFlags, "train", ["pong", "--env", "breakout"]).experiment.stop
    assert (stop.until_score, stop.steps) == (None, PRESETS["pong"].stop.steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_learns_environments_as_it_learns_catch(family: str) -> None:
    experiment, _ = preset(f"{family}-CartPole-v1")
    check(experiment)
    algorithm: Any = experiment.algorithm
    assert type(algorithm).__name__ == type(FAMILIES[family].algorithm).__name__
    assert (experiment.games.game, experiment.network.torso) == ("CartPole-v1", "mlp")
    assert (algorithm.reward_clip, experiment.stop.until_score) == ("none", 475.0)
    assert preset(f"{family}-catch")[0] == PRESETS[f"{family}-catch"]


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_of_the_environment_and_end(name: str) -> None:
    experiment = for_environment(name, (1, 8), 1)  # its package may be missing here
    assert experiment.games.game == name
    assert (experiment.stop.until_score is None) == (name == "LunarLander-v3")
    assert experiment.stop.steps
    experiment.algorithm.check(experiment.shape.datapoints)


def test_arguments_of_an_environment_are_settings(tmp_path: Path) -> None:
    words = ("FrozenLake-v1", "--env-kwargs", "map_name='8x8'", "is_slippery=False", "--seed", "2")
    wanted = resolve(ExperimentFlags, "train", words).experiment
    assert wanted == entry.preset(
        "FrozenLake-v1", env_kwargs={"map_name": "8x8", "is_slippery": False}, seed=2
    )
    assert wanted.games.env_kwargs == ("map_name='8x8'", "is_slippery=False")
    write_config(tmp_path, Config("lake", wanted, 4, {}))
    games = read_config(tmp_path).experiment.games
    assert (games, frame_shape(games)) == (wanted.games, (1, 64))
    env: Any = make_env(games, stack=1)
    assert (env.unwrapped.desc.shape, env.observation_space.shape) == ((8, 8), (64,))
    read = arguments_of(("a=8x8", "b=false", "c=None", "d=null", "e=[1, 2]", "f=", "g='8'"))
    assert read == {"a": "8x8", "b": False, "c": None, "d": None, "e": [1, 2], "f": "", "g": "8"}
    with pytest.raises(ColobusError, match=r"env_kwargs where=<object.*make_env=lambda"):
        entry.preset("FrozenLake-v1", env_kwargs={"where": object()})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("helpers.gym_toys:robot", "have 6 continuous numbers, and at most 5 numbers are learned"),
        ("pong --env-kwargs size=8", "--env-kwargs size=8: has an effect only in environments of"),
        ("catch --observe image", "--observe image: has an effect only in environments of Gymnas"),
        ("CartPole-v1 --observe a", "--observe a: CartPole-v1 has no observation 'a'"),
        ("CartPole-v1 --env-kwargs 8", "--env-kwargs 8: write name=value, such as size=8"),
        ("CartPole-v1 --env-kwargs size=8", "cannot be made: TypeError CartPoleEnv.__init__() got"),
        ("CartPol-v1", "unknown game or preset 'CartPol-v1': nearest known: CartPole-v1"),
        ("CartPole-v1 --sticky 0.25", "--sticky 0.25: has an effect only in Atari games"),
        ("CartPole-v1 --conv-init normal", "--conv-init normal: has an effect only with a --torso"),
        ("no_such_package:Maze-v0", "no module named 'no_such_package'"),
    ],
)
def test_what_does_not_fit_is_one_line(words: str, said: str) -> None:
    assert said in refused("train", *words.split())


def test_env_with_resume_is_refused() -> None:
    with pytest.raises(ColobusError, match="'catch' with --resume"):
        resolve_again(ExperimentFlags, "train", ["--env", "catch"], PRESETS["catch"])


def test_show_knows_the_sizes_of_an_environment() -> None:
    data = told("show", "CartPole-v1")
    assert data["settings"]["games"]["game"] == "CartPole-v1"
    layers = (4 * 64 + 64) + (64 * 64 + 64) + 2 * 64  # and a layer norm
    assert data["parameters"] == layers + (2 * 64 + 2) + (64 + 1)
