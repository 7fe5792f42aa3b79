"""The screen of settings: which combinations there are, what they tell, and equal budgets."""

from __future__ import annotations

import gzip
import json
from itertools import combinations as pairs_of
from pathlib import Path
from typing import Any

import pytest

import ledger
import screen
import sections_screen
from candidates import DQN, words_of
from cells import SEEDS
from gelada.cli.main import run as gelada
from lookup import Results
from screen import CHANCE, CHANGES, PLAIN, combinations, effects, shown, signs

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}


def is_on(row: dict[str, Any], name: str) -> bool:
    return bool(row[name] == CHANGES[name])


def test_each_setting_is_on_in_four_and_any_two_together_in_two() -> None:
    rows = combinations()
    assert len(rows) == 8
    assert rows[0] == PLAIN
    assert rows[0].keys() == DQN.keys()
    assert rows[6] == screen.BEST
    for name in CHANGES:
        assert sum(is_on(row, name) for row in rows) == 4
    for one, other in pairs_of((*CHANGES, CHANCE), 2):
        assert sum(on[one] and on[other] for on in signs()) == 2


def test_the_effect_of_a_setting_is_what_it_adds_whatever_the_others_do() -> None:
    worth = {name: 0.1 * number - 0.3 for number, name in enumerate(CHANGES)}
    values = {
        one: 2.0 + sum(worth[name] for name in CHANGES if is_on(row, name))
        for one, row in enumerate(combinations())
    }
    assert effects(values) == pytest.approx(worth | {CHANCE: 0.0})


def test_no_seed_that_measures_and_every_combination_can_be_trained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not {screen.SEED, screen.ANOTHER} & set(SEEDS)
    for row in (*combinations(), *screen.OTHERS.values()):
        family, words = words_of(row)
        assert gelada(["show", f"{family}qbert", *words, "--deterministic"]) == 0
    capsys.readouterr()


def test_what_is_there_is_not_run_again_and_the_late_scores_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen, "FILE", tmp_path / "screen.jsonl")
    asked = []

    def train(game: str, settings: Any, seed: int) -> tuple[str, list[Any], list[Any]]:
        asked.append(game)
        scores = {100: None, 740: 1.0, 760: 500.0, 1000: 700.0}
        metrics = [{"steps": n, "seconds": 1.0, "score": score} for n, score in scores.items()]
        return f"gelada train dqn-{game}", metrics, metrics[-1:]

    monkeypatch.setattr(screen, "train", train)
    assert screen.main(["qbert"]) == 0
    assert screen.main(["qbert"]) == 0
    assert len(asked) == 8 + len(screen.OTHERS)
    assert "seed 12" not in capsys.readouterr().out
    for again in ("6", "6", "6, torso pooled"):
        assert screen.main(["qbert", "--again", again]) == 0
    assert len(asked) == 10 + len(screen.OTHERS)
    said = capsys.readouterr().out
    assert "gamma 0.97 to 0.995, seed 12 |" in said
    assert "|  | 600 | 6, torso pooled, seed 12 |" in said
    assert "| 0 | 600 | plain |" in said
    assert "|  | 600 | munchausen 0.9, gamma 0.97 to 0.995 |" in said
    assert "| lr 0.001 | +0.000 | **+0.000** |" in said


def test_a_training_that_fails_ends_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "gelada"
    program.write_text("#!/bin/sh\necho no such game\nexit 2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(screen, "GELADA", str(program))
    with pytest.raises(SystemExit, match="exit code 2: no such game"):
        screen.train("qbert", PLAIN, 11)


def test_the_effects_are_shown_once_all_have_played() -> None:
    about: dict[str, Any] = {"game": "qbert", "seed": screen.SEED, "score": 1000.0}
    lines = [{**about, "combination": n} for n in range(8)]
    assert not any(CHANCE in line for line in shown(lines[:7]))
    assert sum(CHANCE in line for line in shown(lines)) == 1


def test_the_section_has_the_largest_effect_first() -> None:
    assert sections_screen.sections([]) == []
    about: dict[str, Any] = {
        "game": "qbert",
        "machine": MACHINE,
        "time": "2026-01-01T00:00:00+00:00",
    }
    about |= {"steps": 400_000, "seconds": 300.0, "seed": screen.SEED}
    lines = [
        about | {"combination": one, "score": 2000.0 if is_on(row, "duelling") else 1000.0}
        for one, row in enumerate(combinations())
    ]
    runs, effects = sections_screen.sections(lines)
    assert (len(runs.rows), len(effects.rows)) == (8, 7)
    assert effects.rows[0].cells[0] == "duelling heads"
    assert float(effects.rows[0].cells[1]) > 0.1
    assert {row.cells[1] for row in effects.rows[1:]} <= {"+0.000", "-0.000"}
    assert [len(one.rows) for one in sections_screen.sections(lines[:5])] == [8]


def test_a_long_run_stands_beside_those_of_ppo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LEDGER", tmp_path / "ledger.jsonl")
    about: dict[str, Any] = {"machine": MACHINE, "event": "finished", "what": "breakout-train"}
    about |= {"seed": 1, "result": {}}
    runs = [
        {"kind": "long", "seed": 11, "log": "dqn", "time": "2026-11-25", "machine": MACHINE}
        | {"settings": {"frames": "42 small"}},
        about | {"settings": "a", "log": "old", "time": "2026-11-21"},
        about | {"settings": "b", "log": "new", "time": "2026-11-22"},
        about | {"settings": "c", "log": "today", "time": "2026-11-26"},  # by DQN
    ]
    for number, line in enumerate(runs):
        (tmp_path / line["log"]).mkdir()
        points = [{"steps": n * 300_000, "score": n + number / 10} for n in range(8)]
        text = "".join(json.dumps(point) + "\n" for point in points)
        data = gzip.compress(text.encode())
        (tmp_path / line["log"] / "metrics.jsonl.gz").write_bytes(data)
    results = Results(runs[1:])
    assert sections_screen.long([], results) == []
    (section,) = sections_screen.long(runs[:1], results)
    assert section.head == (
        "steps",
        "DQN, `small`, seed 11",
        "`ppo-breakout`, seed 1",
        "`ppo-breakout`, seed 1",
    )
    rows = {row.label: row.cells[1:] for row in section.rows}
    assert rows["400,000"] == ("2.0", "2.1", "2.2")
    assert rows["2,000,000"] == ("7.0", "7.1", "7.2")
    assert rows["2,700,000"] == ("", "", "")
