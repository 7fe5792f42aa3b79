"""Which checkpoint plays: the best one where the newest is worse, by scores worked out by hand."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.core.checkpoint import list_checkpoints, read_about, write_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.types import Episode, Version
from colobus.evaluation.agent import load
from colobus.roles.tracker import StopRule
from colobus.roles.tracker.score import WINDOW, Score
from colobus.runs.best import best_evaluated, pick_checkpoint
from colobus.training.saving import newest_of
from colobus.training.words import already_over
from helpers import gym_toys
from helpers.launching import printed
from helpers.players import CATCH, make_checkpoint, make_experiment, write_run


def add(
    run: Path, number: int, scores: list[float], of: dict[str, Any] | None = None, **counters: Any
) -> Path:
    """Write a checkpoint of version ``number`` after 100 times as many steps."""
    checkpoint = make_checkpoint(make_experiment(CATCH), 3, 100 * number)
    checkpoint = checkpoint._replace(
        version=Version(0, number), counters={"recent_scores": scores, **counters}, run=of
    )
    return write_checkpoint(run / "checkpoints", checkpoint)


def evaluated(
    run: Path, number: int, mean: float, games: int = 50, protocol: str = "dba3c", **more: Any
) -> None:
    """Write an evaluation with a standard error of 1."""
    row = {"steps": 100 * number, "protocol": protocol, "mean": mean, "standard_error": 1.0}
    row |= {"episodes": games, "policy": "greedy", "epoch": 0, "version": number, **more}
    (run / "eval").mkdir(exist_ok=True)
    name = f"{100 * number}-{protocol}-{games}-greedy-seed{more.get('seed', 0)}.json"
    (run / "eval" / name).write_text(json.dumps(row))


def around(mean: float, spread: float = 7.0) -> list[float]:
    """Return 50 scores with this mean; 7 apart from it, their standard error is 1."""
    return [mean - spread, mean + spread] * 25


def picked(run: Path, wanted: str | int = "") -> tuple[int, list[str]]:
    lines: list[str] = []
    found = load(run, checkpoint=wanted, log=lines.append)
    return found.checkpoint.version.number, lines


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    return tmp_path


@pytest.mark.parametrize(
    ("first", "last", "number"),
    [(400.0, 400.0, 20), (500.0, 497.3, 20), (500.0, 497.1, 10), (500.0, 77.6, 10)],
    ids=["equal", "a difference of 2.7", "of 2.9: the interval is 2.8", "collapsed"],
)
def test_the_best_plays_where_the_newest_is_worse_than_the_interval(
    run: Path, first: float, last: float, number: int
) -> None:
    """Two standard errors of 1.01 each make an interval of 1.96 * 1.43 = 2.8."""
    add(run, 10, around(first))
    add(run, 20, around(last))
    told = (
        "best checkpoint, after 1,000 steps: score 500.00 ± 1.00 in 50 games of training; "
        f"the newest (last) has {last:.2f} ± 1.00"
    )
    assert picked(run) == (number, [told] if number == 10 else [])
    assert picked(run, "last") == (20, [])
    assert picked(run, "best")[0] == 10
    assert picked(run, 20) == picked(run, "00000020.safetensors") == (20, [])


@pytest.mark.parametrize(("game", "number"), [("catch", 10), ("catch-pair", 20)])
def test_the_agents_of_a_game_are_not_games(run: Path, game: str, number: int) -> None:
    """The interval of 25 games of two agents is 1.41 times that of 50 games: 3.9, not 2.8."""
    for version, mean in ((10, 500.0), (20, 497.0)):
        add(run, version, around(mean), {"game": game}, peak=[0, 10, 500.0, 1.0])
    found, _ = pick_checkpoint(run, "", lambda _: None, lambda _: None)
    assert found.stem == f"{number:08}"


@pytest.mark.parametrize("scores", [around(500.0)[:49], [*around(500.0), math.nan, math.inf][2:]])
def test_a_score_of_few_games_or_of_no_number_is_none(run: Path, scores: list[float]) -> None:
    add(run, 10, scores)
    add(run, 20, around(77.6))
    assert picked(run) == (20, [])
    add(run, 30, [1.0])
    assert picked(run, "best") == (20, ["best checkpoint, after 2,000 steps: score 77.60 ± 1.00 in "
                                        "50 games of training"])  # fmt: skip


def test_of_equal_ones_the_first_is_best_and_one_that_is_damaged_is_passed_over(run: Path) -> None:
    first = add(run, 10, around(500.0))
    add(run, 20, around(500.0))
    add(run, 30, around(5.0))
    assert picked(run)[0] == 10
    first.write_bytes(b"damaged")
    found, (line,) = picked(run)
    assert found == 30
    assert "00000010.safetensors" in line
    assert line.endswith("using the newest, which may be worse")


def test_a_run_knows_its_best_by_the_games_on_both_sides_of_it(run: Path) -> None:
    """Checkpoint 20 had the better games before it, but the ones after it were bad."""
    add(run, 10, around(300.0))
    add(run, 20, around(400.0))
    add(run, 30, around(50.0), peak=[0, 10, 350.0, 2.0])
    assert picked(run)[0] == picked(run, "best")[0] == 10
    add(run, 40, around(360.0), peak=[0, 10, 350.0, 2.0])
    assert picked(run, "best")[0] == 40


def test_evaluations_of_the_same_kind_come_first(run: Path) -> None:
    for number, score in ((10, 300.0), (20, 310.0), (30, 100.0)):
        add(run, number, around(score))
    evaluated(run, 10, 500.0)
    assert picked(run)[0] == 20  # one alone can be compared with none
    evaluated(run, 20, 400.0, protocol="noop")
    assert picked(run)[0] == 20
    evaluated(run, 20, 400.0, games=10)
    assert picked(run)[0] == 20
    evaluated(run, 30, 499.0)
    assert picked(run)[0] == 30  # not worse by the evaluation, however it was in training
    evaluated(run, 30, 400.0, games=60)
    found, (line,) = picked(run)
    assert found == 10
    assert line.endswith("score 500.00 ± 1.00 in 50 games by protocol dba3c; the newest (last) has "
                         "400.00 ± 1.00")  # fmt: skip
    add(run, 40, around(900.0))  # not evaluated, and far better in training than any that was
    assert picked(run)[0] == picked(run, "best")[0] == 40
    add(run, 50, around(100.0))
    assert picked(run)[0] == 40


def test_a_run_that_goes_on_knows_of_evaluations_that_ended_after_its_checkpoint(run: Path) -> None:
    add(run, 10, [])
    evaluated(run, 10, 300.0)
    evaluated(run, 20, 900.0)  # it is deleted
    add(run, 30, [])
    evaluated(run, 30, 900.0, epoch=1)  # it was another one, after the run went back
    evaluated(run, 30, 900.0, games=40, episodes_asked=50)
    add(run, 40, [], evaluated=[10, 300.0, 1.0])
    evaluated(run, 40, 900.0, seed=1)  # by hand
    evaluated(run, 40, 900.0, games=5, episodes_asked=5)
    assert newest_of(run, None)[1].counters["evaluated"] == [10, 300.0, 1.0]
    evaluated(run, 40, 400.0, episodes_asked=50)
    path = run / "eval" / "4000-dba3c-50-greedy-seed0.json"
    path.rename(path.with_stem(f"{path.stem}-2"))  # beside that of one before the run went back
    assert newest_of(run, None)[1].counters["evaluated"] == [40, 400.0, 1.0]
    assert already_over(run, StopRule(until_evaluated=400.0)) == "evaluated score 400.00 of 400"
    assert best_evaluated(run, None) == [40, 400.0, 1.0]


def test_games_from_other_start_states_are_of_another_kind(run: Path) -> None:
    """Checkpoint 10 has more points from an easy file than 20 has from a hard one."""
    for number, file in ((10, "easy"), (20, "hard")):
        add(run, number, around(10.0 * number))
        evaluated(run, number, 500.0 - 10.0 * number, protocol="human", starts={"sha256": file})
    assert picked(run) == (20, [])
    evaluated(run, 10, 400.0, games=60, protocol="human", starts={"sha256": "hard"})
    assert picked(run)[0] == 10


def test_what_cannot_be_picked_is_one_line(run: Path) -> None:
    path = add(run, 10, [])
    for wanted in ("7", "first", "1" * 5000):
        why = "there are: best, last, 10"
        with pytest.raises(ColobusError, match=f"--checkpoint {wanted}: not in .*; {why}$"):
            picked(run, wanted)
    assert picked(run, f"{10:020}")[0] == 10
    with pytest.raises(ColobusError, match=r"checkpoint best: .* is one already; leave one out"):
        load(path, checkpoint="best")
    said = printed("eval", run, "--checkpoint", "best", "--episodes", 2)
    assert "no checkpoint has the score of 50 games yet" in said


def play(score: Score, games: Iterable[int], worth: float | None = None) -> None:
    """Count games that are worth their number, or as much as is said; mark every tenth."""
    for number in games:
        score.add([Episode(0, 0, float(number) if worth is None else worth, 1)])
        score.take(number)
        if number % 10 == 0:
            score.mark(Version(2, number))
            assert len(score.marked()) <= WINDOW // 2 // 5 + 2


def test_the_score_of_a_checkpoint_is_that_of_the_games_around_it() -> None:
    score = Score({})
    play(score, range(1, 101))
    play(score, range(101, 201), 0.0)
    # games 51 to 100 are those around 75; of the checkpoints 70 has the games 46 to 95, and 80 has
    # 56 to 100 and five that are worth nothing
    means = {70: sum(range(46, 96)) / 50, 80: sum(range(56, 101)) / 50}
    assert means == {70: 70.5, 80: 70.2}
    assert score.peak is not None
    assert score.peak[:3] == [2, 70, 70.5]
    assert score.peak[3] == pytest.approx((50 * 51 / 12) ** 0.5 / 50**0.5)


def test_the_checkpoint_with_which_a_run_stopped_is_measured_after_a_resume() -> None:
    score = Score({})
    play(score, range(1, 101))
    saved = {**score.counters(), "peak": score.peak, "marks": [*score.marks]}
    score = Score(json.loads(json.dumps(saved)))
    assert score.marked() == {70, 80, 90, 100}
    play(score, range(101, 201), 60.0)
    assert score.peak is not None
    assert score.peak[:3] == [2, 80, (sum(range(56, 101)) + 5 * 60) / 50]


@pytest.mark.parametrize("last", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_not_the_best(last: float) -> None:
    score = Score({})
    play(score, range(2 * WINDOW), last)
    assert score.peak is None


class Turning(gym_toys.Walk):
    """A walk in which action 1 costs a point after many games."""

    games = 0

    def reset(self, **more: Any) -> Any:
        Turning.games += 1
        return super().reset(**more)

    def step(self, action: Any) -> Any:
        worth = 1.0 if Turning.games < 3_000 else -1.0
        seen, reward, *rest = super().step(action)
        return seen, worth * reward, *rest


@pytest.mark.slow
def test_a_run_that_collapses_keeps_and_serves_the_best_agent(tmp_path: Path) -> None:
    Turning.games = 0
    more: dict[str, Any] = {"checkpoint_seconds": 0.1, "keep_checkpoints": 1, "tensorboard": False}
    out = tmp_path / "run"
    colobus.train(make_env=Turning, steps=60_000, out=out, log=lambda _line: None, **more)
    kept = [read_about(path).steps for path in list_checkpoints(out / "checkpoints")]
    assert 3 <= len(kept) <= 1 + 8 + 1 + 6
    lines: list[str] = []
    best = load(out, make_env=gym_toys.Walk, log=lines.append)
    last = load(out, make_env=gym_toys.Walk, checkpoint="last")
    assert best.checkpoint.steps < last.checkpoint.steps == kept[-1]
    scores = [colobus.evaluate(agent, episodes=50, policy="greedy").mean for agent in (best, last)]
    assert scores[0] > 4.0 > 1.0 > scores[1]
    assert len(lines) == 1
    assert lines[0].startswith("best checkpoint, after ")
