"""Environments and algorithms of others by their names: from training to a film, and refusals."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.algorithms.api import Ends
from colobus.cli.experiment_flags import ExperimentFlags, resolve, resolve_again
from colobus.core.errors import ColobusError
from colobus.core.functions import arguments_of
from colobus.envs.api import GameSettings
from colobus.envs.make import frame_shape
from colobus.envs.playing import make_env
from colobus.experiment.check import check
from colobus.experiment.presets import FAMILIES, PRESETS, in_environment, preset
from colobus.experiment.presets.environments import RECIPES, for_environment
from colobus.nets.config import NetworkSettings
from colobus.runs.config import Config, read_config, write_config
from colobus.training import entry
from helpers.launching import colobus as command
from helpers.launching import printed, python, refused, told

ENVIRONMENTS = """
import gymnasium
from helpers import gym_toys

def make(num_envs):
    return gymnasium.vector.SyncVectorEnv([gym_toys.walk] * num_envs)
"""

ALGORITHMS = '''
from dataclasses import dataclass

import colobus


@dataclass(frozen=True)
class Shy(colobus.APPO):
    """Half of the policy's loss."""

    epochs: int = 1
    shyness: float = 0.5
    """How much of the loss is left out."""

    def loss(self, *args, **kwargs):
        loss, terms = super().loss(*args, **kwargs)
        return (1.0 - self.shyness) * loss, terms | {"shy": loss.detach()}


@dataclass(frozen=True)
class Greedy(colobus.APPO):
    actors: int = 1


class Nothing:
    pass
'''


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the commands run, with the modules."""
    (here / "walks_of_mine.py").write_text(ENVIRONMENTS, encoding="utf-8")
    (here / "shy_module.py").write_text(ALGORITHMS, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("walks_of_mine", "shy_module"):  # those of another test's folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    return here


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
    assert command("eval", folder, "--protocol", "noop")[0] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_a_function_in_a_module_by_env() -> None:
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
    large = "helpers.gym_toys:doors_in_pictures"
    assert of("pixels", "--env", large)[1] == of(large)[1]  # whatever its size
    seeded = entry.preset("pixels", seed=3)
    assert in_environment(seeded, large)[0].network == preset(large)[0].network
    assert of("pong", "--env", "CartPole-v1") == ("CartPole-v1", "mlp", "pong-CartPole-v1")
    assert of("--env", "breakout") == ("breakout", "pooled", "breakout")
    assert of("--env", grid, "--env=breakout") == of("--env", "breakout")  # the last one counts
    assert of("pong", "--env", "breakout") == ("breakout", "small", "pong-breakout")
    for general in ("pixels", "vector"):  # one frame does not say where a ball flies
        wanted = resolve(ExperimentFlags, "train", [general, "--env", "ALE/Pong-v5"])
        assert wanted.experiment.network == NetworkSettings()
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
    experiment = for_environment(GameSettings(game=name))  # its package may be missing here
    assert experiment.games.game == name
    own = for_environment(GameSettings(game=f"some_package:{name}"))
    assert own.games.game == f"some_package:{name}"
    assert own.algorithm == experiment.algorithm
    assert (experiment.stop.until_score is None) == (name == "LunarLander-v3")
    assert experiment.stop.steps
    experiment.algorithm.check(experiment.shape.datapoints)


def test_arguments_of_an_environment_are_settings(tmp_path: Path) -> None:
    words = ("FrozenLake-v1", "--env-kwargs", "map_name='8x8'", "is_slippery=False", "--seed", "2")
    wanted = resolve(ExperimentFlags, "train", words).experiment
    lake = {"map_name": "8x8", "is_slippery": False}
    assert wanted == entry.preset("FrozenLake-v1", env_kwargs=lake, seed=2)
    assert wanted.games.env_kwargs == ("map_name='8x8'", "is_slippery=False")
    write_config(tmp_path, Config("lake", wanted, 4, {}))
    games = read_config(tmp_path).experiment.games
    assert (games, frame_shape(games)) == (wanted.games, (1, 64))
    env: Any = make_env(games, stack=1)
    assert (env.unwrapped.desc.shape, env.observation_space.shape) == ((8, 8), (64,))
    for given in (("--env_kwargs", "key=True"), ("--env-kwargs=key=True",)):  # which it needs
        doors = resolve(ExperimentFlags, "train", ("helpers.gym_toys:Doors", *given)).experiment
        assert doors.games.env_kwargs == ("key=True",)
    read = arguments_of(("a=8x8", "b=false", "c=None", "d=null", "e=[1, 2]", "f=", "g='8'"))
    assert read == {"a": "8x8", "b": False, "c": None, "d": None, "e": [1, 2], "f": "", "g": "8"}
    with pytest.raises(ColobusError, match=r"env_kwargs where=<object.*make_env=lambda"):
        entry.preset("FrozenLake-v1", env_kwargs={"where": object()})


@pytest.mark.usefixtures("module")
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
        ("no_such_package:Maze-v0", "no module named 'no_such_package'"),
        ("--env walks_of_mine.py:make", "without .py, with dots for folders: walks_of_mine:make"),
        ("--env ./walks_of_mine:make", "without .py, with dots for folders: walks_of_mine:make"),
        ("--env ./walks_of_mine.py:make", "without .py, with dots for folders: walks_of_mine:make"),
        ("catch --algorithm shy_module:Nothing", "is no algorithm"),
        ("catch --algorithm shy_module:Absent", "module shy_module has no function Absent"),
        ("catch --algorithm shy_module:Greedy", "its setting actors has the name of another"),
        ("catch --algorithm dqm", "unknown algorithm 'dqm'; nearest known: dqn"),
    ],
)
def test_what_does_not_fit_is_one_line(words: str, said: str) -> None:
    assert said in refused("train", *words.split())


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nowhere", "no module named 'nowhere'; install the package that has it"),
        ("raise ImportError('libGL.so.1')", "cannot be imported: ImportError libGL.so.1 (at fails"),
        ("def (", "cannot be imported: SyntaxError "),
        ("make = Lost", "cannot be imported: NameError name 'Lost' is not defined (at fails.py:1)"),
        ("import sys; sys.exit('no')", "cannot be imported: SystemExit no (at fails.py:1)"),
        ("open('gone.json')", "cannot be imported: FileNotFoundError "),
        ("int('x')", "cannot be imported: ValueError invalid literal"),
    ],
)
def test_a_module_that_fails_is_one_line(text: str, said: str) -> None:
    Path("fails.py").write_text(text + "\n", encoding="utf-8")
    sys.modules.pop("fails", None)
    importlib.invalidate_caches()
    for words in ("--env fails:make", "catch --algorithm fails:Mine"):
        assert said in refused("train", *words.split())


@pytest.mark.processes
def test_json_stands_alone_where_an_environment_prints(tmp_path: Path) -> None:
    text = "import gymnasium, os\n\ndef make():\n    print('hello')\n    os.write(1, b'of C')\n"
    (tmp_path / "loud.py").write_text(text + "    return gymnasium.make('CartPole-v1')\n")
    out = python("-m", "colobus", "show", "--env", "loud:make", "--json", folder=tmp_path)
    assert json.loads(out)["settings"]["games"]["game"] == "loud:make"


def test_show_knows_the_sizes_of_an_environment() -> None:
    data = told("show", "CartPole-v1")
    assert data["settings"]["games"]["game"] == "CartPole-v1"
    layers = (4 * 64 + 64) + (64 * 64 + 64) + 2 * 64  # and a layer norm
    assert data["parameters"] == layers + (2 * 64 + 2) + (64 + 1)


@pytest.mark.processes
def test_every_command_finds_it_by_name(module: Path) -> None:
    folder = module / "run"
    words = ("--steps", 2_000, "--no-tensorboard", "--no-finish", "--shyness", 0.25)
    printed("train", "catch", "--algorithm", "shy_module:Shy", "--out", folder, *words)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))["algorithm"]
    assert (saved["name"], saved["shyness"], saved["epochs"]) == ("shy_module:Shy", 0.25, 1)
    assert '"shy": ' in (folder / "metrics.jsonl").read_text(encoding="utf-8")
    python("-m", "colobus.cli.main", "eval", folder, "--episodes", 2, folder=module)
    printed("train", "--resume", folder, "--steps", 3000, "--no-finish")
    printed("show", folder)
    printed("record", folder, "--out", module / "film.gif", "--seconds", 1)
    run = colobus.train("catch", module / "again", algorithm="shy_module:Shy", steps=600, log=print)
    colobus.load(run.folder)
    assert type(read_config(run.folder).experiment.algorithm).__name__ == "Shy"


def test_its_settings_are_flags_on_those_of_the_preset(module: Path) -> None:
    words = ["pong", "--algorithm", "shy_module:Shy", "--shyness", "0.1"]
    found = resolve(ExperimentFlags, "train", words).experiment
    algorithm: object = found.algorithm
    assert vars(algorithm) == vars(PRESETS["pong"].algorithm) | {"epochs": 1, "shyness": 0.1}
    other = resolve(ExperimentFlags, "train", ["pqn-pong", *words[1:]]).experiment.algorithm
    assert vars(other) == vars(colobus.APPO()) | {"epochs": 1, "shyness": 0.1}  # no PQN
    given = colobus.preset("pong", algorithm=type(found.algorithm), shyness=0.1)
    assert given.algorithm == found.algorithm
    for again, said in (
        (words[1:3], "--algorithm shy_module:Shy with --resume"),
        (["--env", "catch"], "'catch' with --resume"),
    ):
        with pytest.raises(ColobusError, match=said):
            resolve_again(ExperimentFlags, "train", again, found)


def test_an_algorithm_without_a_learning_rate_is_one_line() -> None:
    class Endless(colobus.PQN):
        @property
        def ends(self) -> Ends:
            return {}

    base = PRESETS["pqn-catch"]
    with pytest.raises(ColobusError, match=r"^Endless: has no learning rate; .* 'learning_rate': "):
        check(replace(base, algorithm=Endless(**vars(base.algorithm))))
