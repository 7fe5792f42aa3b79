"""A suite: order, ledger, resume, refusals, and the numbers of its table."""

from __future__ import annotations

import csv
import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from colobus.cli.display import Display
from colobus.cli.flags import parse
from colobus.cli.suite import GENERAL, Flags, suite_of
from colobus.core.errors import Diverged
from colobus.evaluation import evaluator
from colobus.evaluation.protocols import PROTOCOLS
from colobus.evaluation.scores import normalised, published
from colobus.experiment.presets import PRESETS, preset
from colobus.experiment.settings import Experiment
from colobus.report import ledger
from colobus.report.results import LedgerLine
from colobus.roles.tracker import StopRule
from colobus.training import run as training
from helpers.launching import colobus, printed, refused, told
from helpers.made_runs import row, write_metrics

SMALL = ("--preset", "catch", "--protocol", "training", "--episodes", "2")

Trained = list[tuple[str, bool]]


def suite_in(folder: Path, *words: str) -> ledger.Suite:
    """Return what a command line asks for."""
    return suite_of(parse(Flags, "suite", [*words, "--out", str(folder)]))


def finished(folder: Path) -> list[tuple[str, int]]:
    lines = (folder / "suite.jsonl").read_text().splitlines()
    return [(row["game"], row["seed"]) for row in map(json.loads, lines)]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Runs that were trained, with whether they were resumed."""
    seen: Trained = []
    real = training.train

    def train(
        experiment: Experiment, folder: Path, name: str, resume: bool, *rest: Any, **how: Any
    ) -> Any:
        seen.append((folder.name, resume))
        return real(experiment, folder, name, resume, *rest, **how)

    monkeypatch.setattr(training, "train", train)
    return seen


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any) -> None:
        pytest.fail("something was trained")

    monkeypatch.setattr(training, "train", train)


def test_games_by_name_and_by_list() -> None:
    assert ledger.parse_games("pong,ms_pacman,MsPacman,pong") == ("pong", "ms_pacman")
    fewer, all_of_them = ledger.parse_games("atari49"), ledger.parse_games("atari57")
    assert (len(fewer), len(all_of_them)) == (49, 57)
    assert set(fewer) < set(all_of_them)
    assert "surround" not in fewer
    two = ("CartPole-v1", "Pendulum-v1")  # has a note
    assert ledger.parse_games(",".join(two)) == two
    assert all(published(game, "gorila") is not None for game in fewer)
    assert ledger.parse_games("surround,atari49") == ("surround", *fewer)


def test_unknown_games_are_named_before_anything_starts(tmp_path: Path, no_training: None) -> None:
    out, both = tmp_path / "suite", "'pnog' (nearest known: pong), 'breakot' (nearest known: breako"
    for words, line in (
        ("pong,pnog,breakot,catch", f"unknown games {both}"),
        ("PongNoFrameskip-v4", "a suite has the same settings for all games: write pong"),
        ("no_such_package:Maze-v0", "no module named 'no_such_package'"),
        (",", "which games? such as: pong,breakout"),
        ("pong --seeds 0", "--seeds 0: must be at least 1"),
        ("pong --episodes 0", "--episodes 0: must be at least 1"),
        ("pong --steps 5 --minutes 1", "--steps 5 with --minutes 1: give one of them"),
        ("pong --steps 0", "--steps 0: must be at least 1"),
        ("pong --preset pnog", "unknown game or preset 'pnog'"),
        ("pong,catch", "those of catch are 10x5; take --torso tiny"),
        ("pong,catch --preset catch", "protocol 'noop' is for Atari games"),
        ("pong --preset dba3c-breakout-paper", "the preset ends at a score"),
        ("pong --protocol human", "--protocol human: must be one of"),
    ):
        assert line in refused("suite", *words.split(), "--out", out)
        assert not out.exists()


def test_all_runs_differ_in_game_and_seed_only() -> None:
    got = suite_in(Path("x"), "pong,alien,surround", "--seeds", "2", "--minutes", "10")
    assert got.pairs == [(game, n) for n in (1, 2) for game in ("pong", "alien", "surround")]
    assert GENERAL not in PRESETS
    recipe = replace(preset("breakout")[0], stop=StopRule(minutes=10))
    for game, seed in got.pairs:
        games = replace(recipe.games, game=game)
        assert got.experiment(game, seed) == replace(recipe, games=games, seed=seed)
    assert got.episodes == PROTOCOLS["noop"].episodes
    default = suite_in(Path("x"), "pong", "--preset", "pong")
    assert default.base.stop == StopRule(steps=1_000_000)  # no score, unlike the preset's


def test_the_hash_is_of_all_settings_but_games_and_seeds() -> None:
    base = suite_in(Path("x"), "pong", "--steps", "1000")
    same = suite_in(Path("y"), "alien,pong", "--steps", "1000", "--seeds", "3")
    assert same.settings == base.settings
    others = [
        suite_in(Path("x"), "pong", *words.split())
        for words in (
            "--steps 1001",
            "--minutes 10",
            "--steps 1000 --preset catch",
            "--steps 1000 --preset dba3c-pong",
            "--steps 1000 --protocol sticky",
            "--steps 1000 --episodes 7",
        )
    ]
    assert len({base.settings, *(other.settings for other in others)}) == 1 + len(others)


@pytest.mark.slow
def test_two_games_are_played_in_order_and_once(tmp_path: Path, trained: Trained) -> None:
    """Catch and real Pong on 10 x 10 pixels; then again, where one line of two is missing."""
    words = ["suite", "catch,pong", *SMALL, "--steps", "1200", "--out", str(tmp_path)]
    data = told(*words)
    assert trained == [("catch-1", False), ("pong-1", False)]
    assert finished(tmp_path) == [("catch", 1), ("pong", 1)]
    rows = ledger.read_ledger(suite_in(tmp_path, *words[1:-2]))
    for line in rows:
        assert line.steps >= 1200
        assert line.frames == (4 if line.game == "pong" else 1) * line.steps
        folder = tmp_path / line.run
        assert folder == tmp_path / "runs" / f"{line.game}-1"
        file = folder / "eval" / f"{line.steps}-training-2-sampled-seed1.json"
        saved = json.loads(file.read_text())
        assert (saved["episodes"], saved["mean"]) == (2, line.score)
    assert rows[0].human_normalised is None
    assert rows[1].human_normalised == pytest.approx(100 * (rows[1].score + 20.7) / (14.6 + 20.7))
    assert (data["complete"], len(data["runs"]), len(data["games"])) == (True, 2, 2)
    assert data["median_human_normalised"] == rows[1].human_normalised
    assert "pong" in printed(*words)
    assert len(trained) == 2
    (tmp_path / "suite.jsonl").write_text(json.dumps(asdict(rows[0])) + "\n")
    printed(*words)  # trained, but its line is lost: evaluated once more
    assert len(trained) == 2
    assert finished(tmp_path) == [("catch", 1), ("pong", 1)]
    assert ledger.read_ledger(suite_in(tmp_path, *words[1:-2]))[1] == rows[1]


@pytest.mark.slow
def test_several_seeds_of_one_run_end_with_a_report(tmp_path: Path, trained: Trained) -> None:
    """``train --seeds``: an environment whose name is no folder's, and the same command again."""
    out = tmp_path / "seeds"
    words = ["train", "vector", "--env", "helpers.gym_toys:walk", "--steps", "1200"]
    words += ["--out", str(out), "--seed", "4", "--seeds"]
    said = printed(*words, 2)
    names = [f"helpers.gym_toys-walk-{seed}" for seed in (4, 5, 6)]
    assert trained == [(name, False) for name in names[:2]]
    assert finished(out) == [("helpers.gym_toys:walk", 4), ("helpers.gym_toys:walk", 5)]
    for number, name in enumerate(names[:2]):
        config = json.loads((out / "runs" / name / "config.json").read_text())
        assert config["seed"] == 4 + number
    assert "seeds: 2 of 2" in said
    assert f"{out}/report.html: 2 runs of 1 game\n" in said
    (out / "report.html").unlink()
    data = told(*words, 3, "--keep-checkpoints", 0)  # two are done; what is written may differ
    assert trained[2:] == [(names[2], False)]
    assert [one["seed"] for one in data["runs"]] == [4, 5, 6]
    assert (out / "report.html").is_file()
    assert "was begun with other settings" in refused(*words, "3", "--gamma", "0.5")
    other = refused(*words, "3", "--from", out / "runs" / names[0])
    assert f"{out / 'runs' / names[0]}: began with new weights, not with those of " in other
    assert "--no-finish with --seeds 3: " in refused(*words, "3", "--no-finish")
    err = refused("train", "--resume", out / "runs" / names[0], "--seeds", "2")
    assert "give the command that began them again" in err


CATCH = ("suite", "catch", *SMALL, "--steps", "40000", "--seeds", "2")


@pytest.mark.slow
def test_an_interrupted_training_goes_on(
    tmp_path: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the first look at the second run: a checkpoint, exit 130, then a resume."""
    words = [*CATCH, "--out", str(tmp_path)]

    def watch(self: Display, status: Any, *_: Any) -> None:
        if len(trained) == 2 and status.steps > 2000:
            raise KeyboardInterrupt

    monkeypatch.setattr(Display, "watch", watch)
    code, said, _ = colobus(*words)
    assert code == 130
    assert "stopped by Ctrl-C, all is kept; go on with the same command" in said
    assert "games: 1 of 1, seeds: 1 of 2" in said
    assert finished(tmp_path) == [("catch", 1)]
    checkpoints = sorted((tmp_path / "runs" / "catch-2" / "checkpoints").glob("*.json"))
    before = json.loads(checkpoints[-1].read_text())["steps"]
    assert 0 < before < 40_000
    said = printed(*words)
    assert trained == [("catch-1", False), ("catch-2", False), ("catch-2", True)]
    assert finished(tmp_path) == [("catch", 1), ("catch", 2)]
    assert f"{before:,} steps" in said  # going on from
    assert "2 of 2: catch, seed 2" in said
    assert ledger.read_ledger(suite_in(tmp_path, *CATCH[1:]))[1].steps >= 40_000


def test_a_run_that_fails_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["suite", "catch", *SMALL, "--steps", "1200", "--seeds", "2", "--out", str(tmp_path)]
    real = training.train

    def train(experiment: Experiment, *rest: Any, **how: Any) -> Any:
        if experiment.seed == 2:
            raise Diverged("the loss is nan")
        return real(experiment, *rest, **how)

    monkeypatch.setattr(training, "train", train)
    code, _, err = colobus(*words)
    assert (code, err) == (4, "colobus: catch, seed 2: the loss is nan\n")
    assert finished(tmp_path) == [("catch", 1)]


def test_a_suite_goes_on_as_it_was_begun(
    tmp_path: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted evaluation is done again, and a run that lost its checkpoints is set aside."""
    words = ["suite", "catch", *SMALL, "--out", str(tmp_path), "--steps"]
    real = evaluator.evaluate

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        whole = real(*args, **kwargs)
        return replace(whole, games=whole.games[:1])

    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "evaluate", evaluate)
        assert colobus(*words, 1200)[0] == 130
    assert not (tmp_path / "suite.jsonl").exists()
    printed(*words, 1200)
    assert trained == [("catch-1", False)]  # its training was over
    assert finished(tmp_path) == [("catch", 1)]
    err = refused(*words, "1300")  # said of the run, which would go on with them
    assert "runs/catch-1 was begun with other settings" in err
    err = refused(*words, "1200", "--episodes", "3")
    assert "has results with other settings (preset catch, protocol training, 2 games" in err
    (tmp_path / "suite.jsonl").unlink()  # nothing is finished, but begun
    assert "was begun with other settings" in refused(*words, "1300")
    own = tmp_path / "runs" / "catch-1"
    shutil.rmtree(own / "checkpoints")  # to save room
    (own / "notes.txt").write_text("mine")
    before = (own / "metrics.jsonl").read_bytes()
    printed(*words, 1200)
    assert trained == [("catch-1", False)] * 2  # it begins anew
    aside = tmp_path / "runs" / ".catch-1-1"  # not deleted
    assert (aside / "notes.txt").read_text() == "mine"
    assert (aside / "metrics.jsonl").read_bytes() == before
    assert not (own / "notes.txt").exists()


def entry(suite: ledger.Suite, game: str, seed: int, score: float, **changes: Any) -> LedgerLine:
    base = LedgerLine(
        game=game,
        seed=seed,
        settings=suite.settings,
        preset="",
        protocol=suite.protocol,
        episodes=suite.episodes,
        score=score,
        standard_error=0.25,
        human_normalised=normalised(score, game),
        steps=600_000,
        frames=2_400_000,
        seconds=600.0,
        passed={},
        run=f"runs/{game}-{seed}",
    )
    return replace(base, **changes)


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    suite = suite_in(tmp_path, "pong,alien", "--steps", "1000")
    assert ledger.read_ledger(suite) == []
    first, second = entry(suite, "pong", 1, 3.0), entry(suite, "alien", 1, 4.0)
    ledger.append(suite, first)
    with suite.ledger.open("a") as file:
        file.write('{"game": "alien", "seed"')
    assert ledger.read_ledger(suite) == [first]
    ledger.append(suite, second)
    assert ledger.read_ledger(suite) == [first, second]
    with suite.ledger.open("a") as file:
        file.write('{"game": "alien", "seed": 2}\n')
    assert ledger.read_ledger(suite) == [first, second]


def test_one_seed_has_the_error_of_its_games_and_several_that_of_their_means() -> None:
    suite = suite_in(Path("x"), "pong,breakout,surround", "--seeds", "3", "--minutes", "10")
    entries = [
        entry(suite, "pong", 1, 10.0, passed={"random": 60.0, "dqn_2015": 300.0}),
        entry(suite, "pong", 2, 16.0, seconds=620.0, passed={"random": 40.0}),
        entry(suite, "pong", 3, 19.0, frames=2_700_000, passed={"random": 80.0}),
        entry(suite, "breakout", 1, 30.5, standard_error=1.5, seconds=None),
        entry(suite, "breakout", 4, 999.0),  # of another call, with more seeds
        entry(suite, "alien", 1, 999.0),  # of another call, with more games
    ]
    pong, breakout = ledger.summarize(suite, entries)
    assert (pong.game, len(pong.results), pong.score) == ("pong", 3, 15.0)
    assert pong.error == pytest.approx(math.sqrt((25 + 1 + 16) / 2 / 3))
    assert pong.frames == 2_500_000
    assert pong.seconds == pytest.approx(1820 / 3)
    assert pong.human_normalised == pytest.approx(100 * (15 + 20.7) / (14.6 + 20.7))
    row = ledger.as_dict(pong)
    assert row["seeds"] == 3
    assert row["passed"] == {"random": 60.0}  # the median seed never passed DQN
    assert row["published"]["dqn_2015"] == 18.9
    assert set(row["published"]) == set(ledger.REFERENCES)
    assert (len(breakout.results), breakout.score, breakout.error) == (1, 30.5, 1.5)
    assert breakout.seconds is None
    assert breakout.human_normalised == pytest.approx(100.0)
    assert pong.human_normalised is not None
    both = ledger.human_normalised([pong, breakout])
    assert both == pytest.approx(2 * [(pong.human_normalised + 100.0) / 2])
    low = replace(breakout, results=(replace(breakout.results[0], human_normalised=-10.0),))
    several = ledger.human_normalised([pong, breakout, low])
    assert several is not None
    assert several[0] == 100.0
    unknown = replace(low, results=(replace(low.results[0], human_normalised=None),))
    assert ledger.human_normalised([unknown]) is None


def test_the_time_to_pass_is_that_of_the_running_score(tmp_path: Path) -> None:
    """Pong: random -20.7, human 14.6, DQN 18.9, PPO 20.7 and more."""
    assert ledger.passing_times(tmp_path, "pong") == {}
    rows = [
        row(100, 1.0, None, games=0),
        row(200, 2.0, 15.0, games=49),  # too few games
        row(300, 3.0, -20.7, games=50),  # equal is not passed
        row(400, 4.0, -20.6, games=60),
        row(500, 5.0, 14.7, games=70),
        row(600, 6.0, 19.0, games=80),  # lost: the run went back to 550 steps
        row(560, 7.0, 13.0, games=75),
        row(700, 8.5, 14.8, games=80),
        row(800, 9.0, 12.0, games=90),
    ]
    write_metrics(tmp_path, rows)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 900, "sec')
    assert ledger.passing_times(tmp_path, "pong") == {"random": 4.0, "human": 5.0}
    assert ledger.passing_times(tmp_path, "catch") == {}
    write_metrics(tmp_path, [row(100, 50.25, 18.95, games=51)])
    assert ledger.passing_times(tmp_path, "pong") == {
        name: 50.25 for name in ledger.REFERENCES if (published("pong", name) or 99) < 18.95
    }


def test_the_table_of_a_made_up_ledger(tmp_path: Path, no_training: None) -> None:
    """When all is done already nothing is played: table, CSV and JSON come from the ledger."""
    words = ["suite", "pong,breakout", "--minutes", "10", "--out", str(tmp_path)]
    suite = suite_in(tmp_path, *words[1:-2])
    passed = {"random": 12.0, "human": 3661.0}
    ledger.append(suite, entry(suite, "breakout", 1, 30.5, standard_error=0.0021, passed=passed))
    ledger.append(suite, entry(suite, "pong", 1, -20.7, standard_error=None))
    lines = printed(*words).splitlines()
    assert max(map(len, lines)) <= 120
    assert "general recipe, protocol noop, 30 games" in lines[0]
    pong = next(line.split() for line in lines if line.strip().startswith("pong"))
    assert pong[:6] == ["pong", "-20.70", "2.40", "M", "10:00", "0.0"]
    assert pong[6:9] == ["-20.7", "14.6", "18.9"]
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("breakout"))
    row = lines[at].split()
    assert row[:8] == ["breakout", "30.5000", "±", "0.0021", "2.40", "M", "10:00", "100.0"]
    assert row[8:11] == ["1.7", "30.5", "401.2"]
    assert lines[at + 1].split() == ["in", "0:12", "in", "1:01:01"]
    whole = " ".join(lines)
    assert "games: 2 of 2, seeds: 1 of 1; human-normalised: median 50.0 %, mean 50.0 %" in whole
    with (tmp_path / "suite.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["game"], r["score"], r["seconds_to_human"]) for r in rows] == [
        ("pong", "-20.7", ""),
        ("breakout", "30.5", "3661.0"),
    ]
    data = told(*words)
    assert [one["game"] for one in data["games"]] == ["pong", "breakout"]
    assert data["games"][1]["passed"] == {"random": 12.0, "human": 3661.0}
    assert data["mean_human_normalised"] == pytest.approx(50.0)
    assert [one["game"] for one in data["runs"]] == ["breakout", "pong"]
