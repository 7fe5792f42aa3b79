"""Named protocols, and what is said about an evaluation."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colobus.core.types import Version
from colobus.envs.api import GameSettings
from colobus.evaluation import start_states
from colobus.evaluation.protocols import PROTOCOLS, Evaluation, PlayedGame
from colobus.runs.read import has_evaluation
from helpers.players import CATCH


@pytest.mark.parametrize(
    ("name", "episodes", "sticky", "noop_max", "max_frames"),
    [
        ("training", 100, 0.1, 10, 5000),
        ("noop", 30, 0.0, 31, 18_000),
        ("sticky", 100, 0.25, 0, 108_000),
        ("dba3c", 50, 0.1, 10, 160_000),
        ("human", 100, 0.0, 0, 108_000),
    ],
)
def test_protocols(name: str, episodes: int, sticky: float, noop_max: int, max_frames: int) -> None:
    own = GameSettings(
        game="breakout", size=84, sticky=0.1, noop_max=10, max_frames=5000, life_loss_ends=True
    )
    protocol = PROTOCOLS[name]
    assert (protocol.name, protocol.episodes) == (name, episodes)
    assert protocol.settings(own) == GameSettings(
        game="breakout", size=84, sticky=sticky, noop_max=noop_max, max_frames=max_frames
    )
    assert start_states.GAP == (30, 60)  # seconds between starts, as docs/evaluation.md has them


def test_dba3c_is_greedy_with_a_guard_and_40_000_actions() -> None:
    protocol = PROTOCOLS["dba3c"]
    assert (protocol.policy, protocol.stuck) == ("greedy", 30)
    assert protocol.max_frames == 4 * 40_000
    others = [PROTOCOLS[name] for name in ("training", "noop", "sticky")]
    assert {(other.policy, other.stuck) for other in others} == {(None, None)}


FOUR = ("NOOP", "FIRE", "RIGHT", "LEFT")
TWO = [PlayedGame(1.0, 10, False), PlayedGame(4.0, 20, True)]


def evaluation(games: list[PlayedGame], episodes: int | None = None, **changes: Any) -> Evaluation:
    values: dict[str, Any] = {
        "protocol": PROTOCOLS["sticky"],
        "settings": GameSettings(game="breakout", sticky=0.25, noop_max=0),
        "action_names": FOUR,
        "policy": "greedy",
        "epsilon": 0.05,
        "seed": 11,
        "steps": 1_234_567,
        "seconds": 321.5,
        "version": Version(2, 77),
        "width": 128,
        "episodes": len(games) if episodes is None else episodes,
        "games": tuple(games),
    }
    return Evaluation(**(values | changes))


def test_statistics() -> None:
    scores = [3.0, -2.0, 10.0, 3.5, 0.0]
    got = evaluation([PlayedGame(score, 7, False) for score in scores])
    assert got.mean == pytest.approx(np.mean(scores))
    assert got.standard_error == pytest.approx(np.std(scores, ddof=1) / np.sqrt(5))
    assert (got.median, got.min, got.max) == (3.0, -2.0, 10.0)
    assert got.quartiles == pytest.approx(np.quantile(scores, [0.25, 0.75]))
    one = evaluation([PlayedGame(4.0, 7, False)])
    assert one.mean == one.median == one.min == one.max == 4.0
    assert math.isnan(one.standard_error)
    assert one.lines()[0].endswith(": mean 4.00")
    assert all(math.isnan(quartile) for quartile in one.quartiles)
    of_two: dict[str, Any] = {
        "settings": GameSettings(game="catch-pair"),
        "action_names": ("LEFT", "RIGHT"),
    }
    pairs = [PlayedGame(score, 7, False) for score in (1.0, 1.0, 0.0, 0.0, 1.0, 1.0)]
    error = evaluation(pairs, **of_two).standard_error  # of three games, whose agents score alike
    assert error == pytest.approx(np.std([1.0, 0.0, 1.0], ddof=1) / np.sqrt(3))
    assert evaluation(pairs[:2], **of_two).lines()[0].endswith(": mean 1.00")
    own: list[PlayedGame] = []
    for scores, starts, wanted in (
        ([1.0, 5.0, 3.0, 9.0], [0, 1, 0, 1], 2.5),  # of the means 2 and 7 of two start states
        ([1.0, 3.0, 8.0], [0, 0, 1], 8 / 3),  # sums of deviations: -4 and 4
    ):
        both = zip(scores, starts, strict=True)
        own = [PlayedGame(score, 7, False, start=start) for score, start in both]
        assert evaluation(own).standard_error == pytest.approx(wanted)
    assert math.isnan(evaluation(own[:2]).standard_error)  # of one start state
    two = evaluation([PlayedGame(4.0, 7, False), PlayedGame(8.0, 7, False)])
    assert two.quartiles == (5.0, 7.0)
    assert (two.as_dict()["lower_quartile"], one.as_dict()["upper_quartile"]) == (5.0, None)


def test_the_mean_is_normalised_by_random_play_and_a_human() -> None:
    """Breakout: random 1.7, human 30.5 (Wang et al. 2016, table 2)."""
    got = evaluation([PlayedGame(10.0, 7, False), PlayedGame(22.2, 7, False)])
    assert got.human_normalised == pytest.approx(100 * (16.1 - 1.7) / (30.5 - 1.7))
    line = "human-normalised score 50.0 % (random play, 1.7, is 0 %; a human, 30.5, is 100 %)"
    assert line in got.lines()
    data = got.as_dict()
    assert (data["random_score"], data["human_score"]) == (1.7, 30.5)
    assert data["human_normalised"] == got.human_normalised
    catch = evaluation([PlayedGame(1.0, 9, False)], settings=CATCH)
    assert catch.human_normalised is None
    assert (catch.as_dict()["human_normalised"], catch.as_dict()["human_score"]) == (None, None)
    assert "normalised" not in "\n".join(catch.lines())


def test_lines_tell_the_whole_protocol_and_every_score() -> None:
    games = [PlayedGame(float(i * i), 100 + i, i == 3) for i in range(23)]
    text = "\n".join(evaluation(games).lines())
    for part in (
        "breakout after 1,234,567 steps",
        f"mean {np.mean([g.score for g in games]):.2f}",
        "(standard error)",
        "median 121, quartiles 30.5 and 272.5",
        "min 0",
        "max 484",
        "protocol sticky",
        "23 full games instead of 100",
        "raw rewards",
        "greedy policy",
        "4 actions",
        "seed 11",
        "sticky actions 0.25",
        "no no-ops",
        "108,000 frames (1 games were)",
        "minimal action set",
        "frame skip 4",
        "FIRE at reset: yes, FIRE on life loss: yes",
        "mean length 111 steps",
    ):
        assert part in text
    listed = text.split("scores:\n")[1].split()
    assert [float(score) for score in listed] == [game.score for game in games]
    assert "interrupted" not in text
    large = "\n".join(evaluation([PlayedGame(1234567.0, 9, False)] * 2).lines())
    assert "e+06" not in large
    assert large.count("1234567 1234567") == 1
    noop = evaluation(games, settings=GameSettings(fire_on_life_loss=False, full_actions=True))
    text = "\n".join(noop.lines())
    assert "up to 28 no-ops" in text
    assert "full games instead" not in "\n".join(evaluation(games, episodes=100).lines()[:3])
    assert "full action set" in text
    assert "FIRE on life loss: no" in text
    catch = "\n".join(evaluation(games, settings=CATCH).lines())
    assert "no-ops" not in catch


def test_saved_as_json(tmp_path: Path) -> None:
    path = evaluation(TWO).save(tmp_path)
    assert path == tmp_path / "eval" / "1234567-sticky-2-greedy-seed11.json"
    data = json.loads(path.read_text())
    wanted = {
        "protocol": "sticky",
        "steps": 1_234_567,
        "seconds": 321.5,
        "epoch": 2,
        "version": 77,
        "width": 128,
        "policy": "greedy",
        "seed": 11,
        "episodes": 2,
        "episodes_asked": 2,
        "episodes_of_protocol": 100,
        "interrupted": False,
        "full_games": True,
        "raw_rewards": True,
        "action_set_size": 4,
        "action_set": list(FOUR),
        "fire_at_reset": True,
        "most_noops": 0,
        "mean": 2.5,
        "standard_error": pytest.approx(1.5),
        "median": 2.5,
        "min": 1.0,
        "max": 4.0,
        "scores": [1.0, 4.0],
        "lengths": [10, 20],
        "truncated": [False, True],
        "stuck": None,
        "pressed": [0, 0],
    }
    assert {name: data[name] for name in wanted} == wanted
    assert data["settings"]["sticky"] == 0.25
    assert data["settings"]["max_frames"] == 108_000
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_stuck_guard_is_named_with_its_presses(tmp_path: Path) -> None:
    pressed = ((400, 3), (20, 0), (900, 9))
    games = [PlayedGame(1.0, steps, False, presses) for steps, presses in pressed]
    got = evaluation(games, protocol=PROTOCOLS["dba3c"])
    guard = next(line for line in got.lines() if line.startswith("stuck guard"))
    assert "after 30 equal actions in a row FIRE" in guard
    assert guard.endswith("12 times in all games")
    data = json.loads(got.save(tmp_path).read_text())
    assert (data["stuck"], data["pressed"]) == (30, [3, 0, 9])
    assert "stuck guard" not in "\n".join(evaluation(games).lines())


def test_interrupted_before_the_first_game() -> None:
    none = evaluation([], episodes=5)
    assert none.interrupted
    assert none.lines() == ["breakout: interrupted before the first game was over"]
    data = json.loads(json.dumps(none.as_dict(), allow_nan=False))
    assert data["mean"] is data["standard_error"] is data["max"] is None
    assert data["scores"] == []


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    """Another number of games, policy, seed or result is another file; the same one is the same.

    It becomes the newest: a film at the end of a run is of what was evaluated just before.
    """
    first = evaluation(TWO).save(tmp_path)
    before = first.read_bytes()
    os.utime(first, (9, 9))
    assert evaluation(TWO).save(tmp_path) == first
    assert first.stat().st_mtime > 9
    others = {
        "1-greedy-seed11": evaluation(TWO[:1]),
        "2-sampled-seed11": evaluation(TWO, policy="sampled"),
        "2-greedy-seed12": evaluation(TWO, seed=12),
        "2-greedy-seed11-2": evaluation(TWO[::-1]),  # as by another version
        "2-greedy-seed11-3": evaluation(TWO, version=Version(3, 77)),  # after a resume
        "2-greedy-seed11-interrupted": evaluation(TWO[:1], episodes=2),
        "2-greedy-seed11-interrupted-2": evaluation(TWO[1:], episodes=2),
    }
    for name, other in others.items():
        assert other.save(tmp_path).stem == f"1234567-sticky-{name}"
    assert first.read_bytes() == before
    assert len(list(first.parent.iterdir())) == 1 + len(others)


def test_which_evaluations_are_there(tmp_path: Path) -> None:
    def has(steps: int, episodes: int, seed: int = 11) -> bool:
        return has_evaluation(tmp_path, steps, "sticky", "greedy", episodes, seed)

    assert not has(1_234_567, 2)
    evaluation(TWO, episodes=50).save(tmp_path)  # interrupted
    assert not has(1_234_567, 2)
    evaluation(TWO).save(tmp_path)
    assert [has(1_234_567, 2), has(1_234_567, 1), has(1_234_567, 3)] == [True, True, False]
    assert not has_evaluation(tmp_path, 1_234_567, "sticky", "sampled", 2, 11)
    assert [has(234_567, 2), has(1_234_567, 2, seed=1)] == [False, False]
    (tmp_path / "eval" / "99-sticky.json").write_text("{}")  # of version 0.1
    assert has(99, 50)


@pytest.mark.parametrize(
    ("names", "pressed", "said"),
    [
        (FOUR, True, "up to 29 no-ops at the start|FIRE at reset: yes"),
        (FOUR, False, "up to 30 no-ops at the start|FIRE at reset: no"),
        (("NOOP", "UP", "DOWN"), True, "up to 30 no-ops at the start|the action set has no FIRE"),
    ],
)
def test_fire_at_reset_replaces_a_noop(names: tuple[str, ...], pressed: bool, said: str) -> None:
    settings = PROTOCOLS["noop"].settings(GameSettings(game="breakout", fire_at_reset=pressed))
    got = evaluation(TWO, protocol=PROTOCOLS["noop"], settings=settings, action_names=names)
    text = "\n".join(got.lines())
    assert [part for part in said.split("|") if part not in text] == []
    data = got.as_dict()
    assert data["most_noops"] == (29 if "29" in said else 30)
    assert data["fire_at_reset"] == ("reset: yes" in said)
