"""`colobus.train` and `colobus.preset`: names, settings, folders, callbacks, what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.wrappers import TransformObservation, TransformReward

import colobus
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.files import read_lines
from colobus.core.types import Episode
from colobus.experiment.presets import PRESETS, preset
from colobus.roles.tracker import Status
from colobus.runs.config import read_config
from colobus.runs.curves import read_metrics
from colobus.runtime.devices import find_device
from colobus.training import entry
from colobus.training.callbacks import Callbacks, Caller, StopTraining
from colobus.training.run import train
from conftest import catch, stand_in
from helpers import gym_toys
from helpers.launching import QUIET


def test_a_preset_is_that_of_the_command_line_but_for_a_given_stop_rule() -> None:
    assert colobus.preset("pong") == PRESETS["pong"]
    assert colobus.preset("ALE/Breakout-v5") == preset("ALE/Breakout-v5")[0]
    assert colobus.preset("pong", steps=500).stop == colobus.StopRule(steps=500)
    two = colobus.preset("pong", minutes=2.0, until_score=3.0)
    assert two.stop == colobus.StopRule(minutes=2.0, until_score=3.0)
    auto = colobus.preset("dba3c-pong", until_evaluated="auto", evaluator=True)
    assert auto.stop.until_evaluated == 10.0


def test_settings_have_the_names_of_the_flags() -> None:
    pong = colobus.preset(
        "pong", lr=1e-3, actors=4, optimizer_epsilon=1e-6, size=84, seed=9, deterministic=True
    )
    algorithm: Any = pong.algorithm
    assert (algorithm.lr, pong.shape.actors, pong.optimizer.epsilon) == (1e-3, 4, 1e-6)
    assert (pong.games.size, pong.seed, pong.deterministic) == (84, 9, True)
    both = colobus.preset("pong", games=4, optimizer="radam")  # which are names of groups, too
    assert (both.shape.games, both.optimizer.optimizer) == (4, "radam")
    assert pong.stop == PRESETS["pong"].stop
    whole = colobus.preset("pong", algorithm=colobus.APPO(lr=1e-3))
    assert whole.algorithm == colobus.APPO(lr=1e-3)
    other = colobus.preset("pong", algorithm=colobus.A3C(), n=3)
    assert other.algorithm == colobus.A3C(n=3)


def not_finite() -> Any:
    seen = gym_toys.shifted()
    return TransformObservation(seen, lambda found: found * np.nan, seen.observation_space)


# what is named, with which settings, and what is said of it
NO_PRESETS: list[Any] = [
    ("pogn", {}, "^unknown game or preset 'pogn': nearest known: pong"),
    ("pong", {"lrr": 1}, "^lrr: unknown setting; nearest known: lr"),
    (
        "pong",
        {"epsilon_end": 0.1},
        "^epsilon_end: unknown setting; DQN, IQN and PQN have it, APPO has not; take",
    ),
    ("pong", {"game": "breakout"}, "^game: unknown setting"),
    ("catch", {"sticky": 0.5}, r"^--sticky 0\.5: has an effect only in Atari"),
    ("pong", {"rho_bar": 2.0}, "^--rho-bar 2: has an effect only with"),
]
NO_RUNS: list[Any] = [
    (None, {}, r"^train\(None\): name a game or preset"),
    (3, {}, r"^train\(3\): name a game or preset"),
    ("catch", {"resume": "runs/x"}, "^resume: the run has its own settings"),
    (None, {"resume": "runs/x", "name": "x"}, "^resume: the run has its own settings"),
    ("catch", {"steps": -5}, "^--steps -5: must be at least 1"),
    ("catch", {"steps": "2M"}, "^--steps 2M: "),
    ("dba3c-catch", {"workers": "4"}, "^--workers 4: "),
    ("catch", {"lr": -1.0}, "^--lr -1: must be above 0"),
    ("catch", {"cluster": "h:1"}, "^cluster 'h:1': must be such"),
    ("catch", {"device": None}, "^--device None: must be auto"),
    ("catch", {"device": torch.device("cuda", 99)}, "^--device cuda:99: torch "),
    ("catch", {"act_with": "tf"}, "^--act-with tf: must be one of"),
    ("catch", {"log": None}, "^log None: must be a function"),
    ("catch", {"out": 3}, "^out 3: must be a text or a path$"),
    ("catch", {"name": 5}, "^name 5: must be a text$"),
    ("catch", {"name": "???"}, r"^name '\?{3}': must have a letter"),
    ("catch", {"out": "run", "name": "mine"}, "^name 'mine' with out: the folder has a"),
    ("catch", {"env": 3}, "^env 3: must be a text$"),
    (None, {"env": gym_toys.walk}, "^env: is a function, must be a name"),
    (None, {"make_env": "CartPole-v1"}, "^make_env: is str, must be a"),
    (
        None,
        {"make_env": gym_toys.walk, "env": "CartPole-v1"},
        "^env 'CartPole-v1' with make_env: both say",
    ),
    (
        None,
        {"make_env": not_finite, "out": "run", **QUIET},
        "not_finite: game 0 of 8, step 0: its obs",
    ),
]


@pytest.mark.parametrize(
    ("call", "what", "more", "said"),
    [
        *[(colobus.preset, *case) for case in NO_PRESETS],
        *[(colobus.train, *case) for case in NO_RUNS],
        (colobus.load, Status(), {}, "^Status: is no run; name its folder, such as"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_no_folder(
    call: Any, what: Any, more: Any, said: str, here: Path
) -> None:
    with pytest.raises(colobus.ColobusError, match=said) as error:
        call(what, **more)
    assert "\n" not in str(error.value)
    assert list(here.iterdir()) == []


def test_numbers_of_numpy_and_devices_of_torch_are_taken() -> None:
    wanted = colobus.preset("catch", seed=3, steps=4000, lr=0.5, deterministic=True)
    numpy = {"seed": np.int64(3), "steps": np.int32(4000), "lr": np.float64(0.5)}
    found = colobus.preset("catch", **numpy, deterministic=stand_in(np.bool_(True)))
    assert found == wanted
    assert (type(found.seed), type(found.deterministic)) == (int, bool)
    assert find_device(stand_in(torch.device("cpu"))) == torch.device("cpu")


def test_an_agent_plays_in_the_environment_that_it_was_given(tmp_path: Path) -> None:
    """Functions of the same lines do not stand for each other."""

    def worth(points: float) -> Any:
        return lambda: TransformReward(gym_toys.walk(), lambda reward: points * float(reward))

    ten, hundred = worth(10.0), worth(100.0)
    run = colobus.train(make_env=ten, steps=2_000, out=tmp_path / "run", **QUIET)
    first = colobus.load(run.folder, make_env=ten)
    most = max(colobus.evaluate(first, episodes=20).scores)
    second = colobus.load(run.folder, make_env=hundred)
    assert max(colobus.evaluate(second, episodes=20).scores) > 50.0 >= most > 0.0
    assert max(colobus.evaluate(first, episodes=20).scores) == most
    said: list[str] = []
    colobus.train(resume=run.folder, make_env=hundred, steps=3_000, **QUIET | {"log": said.append})
    game = read_config(run.folder).experiment.games.game
    assert f"{game}: means the function given now, for other runs of this process, too" in said


@pytest.mark.parametrize(
    ("game", "own", "may_be"),
    [
        ("my_envs:make", "my_envs:make#2", True),  # the module was loaded again
        ("my_envs:make", "__main__:make", True),  # it is run as a script
        ("__main__:make", "my_envs:better", True),  # a script that was changed
        ("my_envs:<lambda>", "__main__:<lambda>#2", True),
        ("my_envs:make", "my_envs:better", False),
        ("my_envs:make", "others:make", False),
        ("my_envs:Walk-v1", "__main__:<lambda>", False),
        ("CartPole-v1", "__main__:<lambda>", False),
        ("catch", "__main__:catch", False),
    ],
)
def test_which_functions_a_run_may_go_on_with(game: str, own: str, may_be: bool) -> None:
    assert entry.may_be(game, own) == may_be


class Counted(gym_toys.Walk):
    opened = 0

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        Counted.opened += 1

    def close(self) -> None:
        Counted.opened -= 1


def test_environments_are_closed(tmp_path: Path) -> None:
    run = colobus.train(make_env=Counted, steps=1_000, out=tmp_path / "run", **QUIET)
    assert Counted.opened == 0
    agent = colobus.load(run.folder, make_env=Counted)
    colobus.evaluate(agent, episodes=3)
    colobus.record(agent, tmp_path / "film.gif", seconds=1.0)
    assert Counted.opened == 0


@pytest.mark.slow
def test_a_run_by_experiment_has_its_name_is_resumed_and_tells_how_it_went(here: Path) -> None:
    lines: list[str] = []
    wanted = colobus.preset("catch", steps=2_000)
    run = colobus.train(wanted, name="mine", seed=3, log=lines.append)
    assert run.folder == Path("runs/mine-1")
    assert run.score is not None
    begins = "learning catch into runs/mine-1: 2 actors x 8 games, 1 learner; until 2,000 steps"
    assert lines[0] == begins
    assert lines[-1].startswith(f"{run.steps:,} steps in 0:")
    config = read_config(run.folder)
    assert (config.name, config.experiment.seed, config.experiment.stop.steps) == ("mine", 3, 2000)
    on = colobus.train(resume=run.folder, steps=4_000, **QUIET)
    assert (on.folder, 4_000 <= on.steps < 6_000) == (run.folder, True)
    with pytest.raises(colobus.ColobusError, match=r"^--lr with resume: a run's settings"):
        colobus.train(resume=run.folder, lr=1e-4, **QUIET)
    assert len(colobus.evaluate(run.folder, episodes=20).scores) == 20
    assert colobus.record("runs/mine-1", "film.gif", seconds=2).path.is_file()

    def stop(_: object) -> None:
        raise colobus.StopTraining("enough")

    more: dict[str, Any] = {"resume": run.folder, "steps": 10**6, "on_update": stop}
    colobus.train(**more, log=lines.append)
    steps = newest_checkpoint(run.folder / "checkpoints")[1].steps
    again = "colobus.train(resume='runs/mine-1')"
    assert lines[-1] == f"stopped by enough at {steps:,} steps, all saved; go on with: {again}"
    lines.clear()
    colobus.train(**more, log=lines.append, progress=False)
    assert [line for line in lines if not line.startswith("going on from ")] == []


def test_what_the_name_of_a_game_implies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line; nothing is trained here."""
    monkeypatch.setattr("colobus.training.run.train", lambda *_, **__: None)
    lines: list[str] = []
    colobus.train("ALE/Pong-v5", log=lines.append, progress=False)
    colobus.train("pong", env="BreakoutNoFrameskip-v4", log=lines.append, progress=False)
    colobus.train(env="helpers.gym_toys:grid", log=lines.append, progress=False)
    colobus.train("pong", log=lines.append, progress=False)
    assert [line.split(" (")[0] for line in lines] == [
        "ALE/Pong-v5 implies sticky actions 0.25",
        "BreakoutNoFrameskip-v4 implies sticky actions 0",
        "helpers.gym_toys:grid: the agent observes 'direction', 'image'; numbers are 4 "
        "further planes of the picture",
    ]


@pytest.mark.slow
def test_each_callback_hears_of_everything_in_order_also_after_an_error(tmp_path: Path) -> None:
    """An error is told once, and the run goes on."""
    statuses: list[Status] = []
    episodes: list[Episode] = []
    checkpoints: list[Path] = []
    lines: list[str] = []

    def fail(episode: Episode) -> None:
        episodes.append(episode)
        raise ValueError("no such table")

    callbacks = Callbacks(statuses.append, fail, checkpoints.append)
    result = train(catch(30_000), tmp_path, log=lines.append, callbacks=callbacks)
    assert (result.stopped, result.interrupted) == ("", False)
    versions = [status.version for status in statuses]
    assert versions == sorted(set(versions))
    assert statuses[-1].steps == result.steps == read_metrics(tmp_path)[-1]["steps"] >= 30_000
    assert {"policy_loss", "kl"} <= statuses[-1].values.keys()
    logged = read_lines(tmp_path / "episodes.jsonl")
    assert len(episodes) == len(logged) == result.status.games >= 2_000
    assert [episode.score for episode in episodes] == [line["score"] for line in logged]
    assert {episode.steps for episode in episodes} == {9}
    assert {episode.score for episode in episodes} == {-1.0, 1.0}
    assert checkpoints[-1] == newest_checkpoint(tmp_path / "checkpoints")[0]
    assert len(checkpoints) == len(set(checkpoints))
    (line,) = (line for line in lines if "on_episode" in line)
    assert line.startswith("on_episode raised ValueError: no such table (")
    assert "test_entry.py, line " in line
    assert "\n" not in line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["on_update", "on_episode", "on_checkpoint"])
def test_a_callback_ends_the_run_and_everything_is_saved(tmp_path: Path, name: str) -> None:
    def stop(news: object) -> None:
        raise StopTraining("seen enough")

    result = train(catch(100_000_000), tmp_path, callbacks=Callbacks(**{name: stop}))
    assert result.stopped == "seen enough"
    assert not result.interrupted
    _, checkpoint, _ = newest_checkpoint(tmp_path / "checkpoints")
    assert 0 < checkpoint.steps < 100_000_000


def test_all_that_is_new_is_told_before_a_callback_ends_the_run(tmp_path: Path) -> None:
    """As in the last look of a run, in which it asks for the end again."""
    told: list[object] = []

    def stop(episode: Episode) -> None:
        told.append(episode.score)
        raise StopTraining(f"at {episode.score:g}")

    new = [Episode(0, 0, float(score), 9) for score in range(3)]
    tracker = stand_in(SimpleNamespace(episodes_since=lambda seen: (new[seen:], len(new))))
    caller = Caller(Callbacks(on_episode=stop, on_checkpoint=told.append), tmp_path, pytest.fail)
    with pytest.raises(StopTraining, match=r"^at 0$"):
        caller.look(tracker, Status(last_checkpoint="00000007.safetensors"))
    assert told == [0.0, 1.0, 2.0, tmp_path / "checkpoints" / "00000007.safetensors"]
