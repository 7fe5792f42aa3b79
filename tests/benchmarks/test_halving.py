"""The halving search: what is played next, who goes on, what Optuna is told, and stops anywhere."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import candidates
import halving
import tried
from candidates import (
    APPO,
    BEST,
    DQN,
    FIRST,
    OF,
    OTHERWISE,
    SECOND,
    SPACE,
    fits,
    proposed,
    whole,
    words_of,
)
from cells import SEEDS
from gelada.cli.main import run as gelada
from gelada.evaluation.scores import published
from tried import GAMES, LEVELS, Run, Search, estimated, minutes_of, share


def candidate(number: int, round: int = 0) -> dict[str, Any]:
    settings = FIRST[number % len(FIRST)]
    return {"kind": "candidate", "candidate": number, "round": round, "settings": settings}


def played(number: int, game: str, level: int, score: float | None) -> dict[str, Any]:
    return {"kind": "run", "candidate": number, "game": game, "level": level, "score": score}


def qbert(value: float) -> float:
    """Return the score of Qbert that makes a value, if the other games are at random play."""
    (low, high) = (published("qbert", "random") or 0.0, 7_580.1)
    return low + 4 * value * (high - low)


def all_games(number: int, level: int, value: float) -> list[dict[str, Any]]:
    """Return the lines of a candidate that has played all games of a level."""
    scores = {game: published(game, "random") for game in GAMES}
    scores["qbert"] = qbert(value)
    return [played(number, game, level, scores[game]) for game in GAMES]


def test_a_share_is_0_for_random_play_and_1_for_the_best_public_curve() -> None:
    assert share("qbert", 163.9) == 0.0
    assert share("qbert", 7_580.1) == pytest.approx(1.0, abs=1e-3)
    assert share("freeway", 32.22) == pytest.approx(1.0, abs=0.01)
    assert share("seaquest", None) == 0.0
    assert all(share(game, 1e6) > 1 for game in GAMES)


def test_all_candidates_play_one_game_after_the_other() -> None:
    lines = [candidate(number) for number in range(8)]
    todo = Search(lines).missing()
    assert todo[:9] == [*(Run(n, "qbert", 0) for n in range(8)), Run(0, "space_invaders", 0)]
    assert len(todo) == 32
    lines += [played(0, "qbert", 0, 500.0), played(3, "qbert", 0, 500.0)]
    assert Search(lines).missing()[:3] == [
        Run(1, "qbert", 0),
        Run(2, "qbert", 0),
        Run(4, "qbert", 0),
    ]


def test_the_best_go_on_and_of_equal_ones_the_first() -> None:
    lines = [candidate(number) for number in range(8)]
    for number, value in enumerate([0.1, 0.5, 0.2, 0.5, 0.0, 0.6, 0.5, 0.3]):
        assert Search(lines).reaching(1) == []
        lines += all_games(number, 0, value)
    assert Search(lines).reaching(1) == [5, 1, 3]
    assert Search(lines).missing()[:4] == [
        *(Run(n, "qbert", 1) for n in (5, 1, 3)),
        Run(5, "space_invaders", 1),
    ]
    lines += [*all_games(5, 1, 0.6), *all_games(1, 1, 0.7), *all_games(3, 1, 0.1)]
    assert Search(lines).missing() == [Run(1, game, 2) for game in GAMES]
    lines += all_games(1, 2, 0.4)
    assert Search(lines).missing() == []
    values = Search(lines).tried()
    assert [levels.keys() for _, levels in values[:2]] == [{0}, {0, 1}]
    means = (sum([0.1, 0.5, 0.2, 0.5, 0.0, 0.6, 0.5, 0.3]) / 8, (0.6 + 0.7 + 0.1) / 3)
    assert values[1][1] == pytest.approx({0: 0.5 - means[0], 1: 0.7 - means[1]})
    lines += [candidate(number, round=1) for number in range(8, 16)]
    assert Search(lines).missing()[0] == Run(8, "qbert", 0)


def test_a_run_that_diverged_counts_as_random_play() -> None:
    lines = [candidate(0), *(played(0, game, 0, None) for game in GAMES)]
    assert Search(lines).value(0, 0) == 0.0


def test_the_first_result_of_a_run_counts() -> None:
    lines = [candidate(0), *all_games(0, 0, 0.2), *all_games(0, 0, 0.9)]
    assert Search(lines).value(0, 0) == pytest.approx(0.2)


def test_levels_have_equal_budgets_and_seeds_that_are_not_measured() -> None:
    assert not {level.seed for level in LEVELS} & set(SEEDS)
    assert [level.candidates for level in LEVELS] == [len(FIRST), 3, 1]
    lines = [candidate(number) for number in range(8)]
    assert sum(minutes_of(run) for run in Search(lines).missing()) == 80
    lines += [line for number in range(8) for line in all_games(number, 0, number / 8)]
    assert sum(minutes_of(run) for run in Search(lines).missing()) == 90


def test_the_estimate_is_the_interquartile_mean_of_six_games_with_three_seeds() -> None:
    from gelada.evaluation.scores import normalised
    from gelada.report.statistics import interquartile_mean

    scores = {"qbert": 4310.0, "space_invaders": 580.0, "freeway": 31.9, "seaquest": 1353.6}
    every = [*scores.items(), ("boxing", 83.0), ("beam_rider", 700.0)]
    shares = [(normalised(score, game) or 0.0) / 100 for game, score in every for _ in range(3)]
    assert estimated(dict(scores)) == pytest.approx(interquartile_mean(shares))


@pytest.mark.parametrize("number", range(len(FIRST)))
def test_the_first_candidates_are_settings_that_a_run_takes(number: int) -> None:
    settings = FIRST[number]
    assert fits(settings)
    family, words = words_of(settings)
    for game in GAMES[:1]:
        assert gelada(["show", family + game, "--json", *words]) == 0


@pytest.mark.parametrize("family", OF)
def test_every_value_of_the_space_is_taken(family: str) -> None:
    """The n-th values of all names together, for each n."""
    base = next(one for one in FIRST if one["family"] == family)
    for n in range(max(len(SPACE[name]) for name in OF[family])):
        settings = base | {name: SPACE[name][n % len(SPACE[name])] for name in OF[family]}
        assert fits(settings)
        prefix, words = words_of(settings)
        assert gelada(["show", f"{prefix}qbert", "--json", *words]) == 0, words


def test_the_second_round_has_changes_of_one_setting_to_the_best_of_the_first() -> None:
    assert set(map(str, BEST)) <= set(map(str, FIRST))
    for settings in SECOND:
        assert fits(settings)
        (best,) = (one for one in BEST if one["family"] == settings["family"])
        assert sum(settings[name] != best[name] for name in best) == 1


def test_an_older_candidate_has_what_it_was_trained_with() -> None:
    old = {name: value for name, value in DQN.items() if name != "anneal"}
    assert not fits(old)
    assert whole(old) == DQN
    assert words_of(old) == words_of(DQN)
    assert whole(APPO) == APPO


def test_candidates_that_are_proposed_are_new_and_fit() -> None:
    known = [(settings, {0: number / 10}) for number, settings in enumerate(FIRST)]
    known[3][1][1] = 0.9
    new = proposed(known, 6)
    assert new == proposed(known, 6)
    assert len(new) == 6
    assert all(fits(settings) for settings in new)
    assert all(settings not in FIRST for settings in new)
    assert all(a != b for i, a in enumerate(new) for b in new[:i])
    others = [one for one in known if one[0] != OTHERWISE]
    assert proposed([*others, (OTHERWISE, {0: 0.1})], 2) == proposed(
        [*others, (OTHERWISE, {0: 0.9})], 2
    )
    old = {"family": "dqn", "bins": 51}  # a setting of an earlier search
    assert len(proposed([(old, {0: 0.5}), *known], 1)) == 1


def stand_in(stop_at: int | None = None) -> Any:
    """Return a training that takes no time, and is broken off at one call."""
    numbers = count(1)

    def train(folder: Path, given: list[str], minutes: float) -> str:
        number = next(numbers)
        if number == stop_at:
            raise KeyboardInterrupt
        folder.mkdir(parents=True, exist_ok=True)
        lr = float(given[given.index("--lr") + 1])
        last = {"steps": int(1000 * minutes), "seconds": 60 * minutes, "score": 1000 * lr}
        (folder / "metrics.jsonl").write_text(json.dumps(last) + "\n", encoding="utf-8")
        return ""

    return train


def test_a_search_that_is_stopped_loses_no_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(halving, "RUNS", tmp_path / "runs")
    orders = []
    for name, stops in (("whole", []), ("parts", [1, 5, 30, 2])):
        file = tmp_path / f"{name}.jsonl"
        monkeypatch.setattr(tried, "FILE", file)
        for stop in stops:
            monkeypatch.setattr(halving, "train", stand_in(stop))
            assert halving.main([]) == 130
            with file.open("a", encoding="utf-8") as torn:
                torn.write('{"kind": "run", "cand')  # as if the machine had lost its power
        monkeypatch.setattr(halving, "train", stand_in())
        left = 50 - sum(line["kind"] == "run" for line in tried.lines())
        assert halving.main(["--most", str(left)]) == 0
        lines = tried.lines()
        assert [line["curve"][-1]["score"] for line in lines if line["kind"] == "run"]
        orders.append(
            [
                (line["kind"], line["candidate"], line.get("game"), line.get("level"))
                for line in lines
            ]
        )
    assert orders[0] == orders[1]
    rounds = Search(tried.lines()).rounds
    assert [len(one) for one in rounds] == [8, 8]  # 48 runs are one round
    printed = capsys.readouterr().out
    assert (
        "50 runs are finished; 30 runs, about 75 minutes, until this level is finished." in printed
    )
    assert halving.main(["show"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[2].startswith("| ")
    assert table[2].split(" | ")[1] == "10, 12"
    assert "dqn" in table[2]


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program that writes down how it was called."""
    program = tmp_path / "gelada"
    program.write_text('#!/bin/sh\necho "$@"\nexit ${CODE:-0}\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(halving, "GELADA", str(program))
    folder = tmp_path / "runs" / "one"
    given = ["dqn-qbert", "--seed", "11"]
    assert halving.train(folder, given, 2.5) == ""
    said = folder.with_suffix(".txt").read_text(encoding="utf-8")
    assert said.startswith(f"train dqn-qbert --seed 11 --out {folder} --minutes 2.5 ")
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "00000001.safetensors").touch()
    halving.train(folder, given, 10.0)
    said = folder.with_suffix(".txt").read_text(encoding="utf-8")
    assert said.startswith(f"train --resume {folder} --minutes 10 ")
    monkeypatch.setenv("CODE", "130")
    with pytest.raises(KeyboardInterrupt):
        halving.train(folder, given, 10.0)
    monkeypatch.setenv("CODE", "3")
    with pytest.raises(SystemExit, match="exit code 3"):
        halving.train(folder, given, 10.0)
    program.write_text("#!/bin/sh\necho the loss diverged\nexit 4\n", encoding="utf-8")
    assert halving.train(folder, given, 10.0) == "the loss diverged"


def test_the_values_of_each_family_are_used() -> None:
    """A name of the space that no family has would be a mistake."""
    assert {name for names in OF.values() for name in names} | {"family"} == SPACE.keys()
    assert candidates.SPACE["family"] == tuple(OF)
