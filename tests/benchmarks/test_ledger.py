"""The ledger's rules: which cell is which, what is missing, and what a result is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import cells
import ledger
import run
import timed

BENCHMARKS = Path(run.__file__).parent


def cell(what: str = "a", seed: int = 1, **settings: Any) -> Any:
    return ledger.Cell(what, seed, settings, lambda *_: {"answer": 42})


def line(cell: Any, event: str, **more: Any) -> dict[str, Any]:
    about = {"what": cell.what, "settings": cell.hash, "seed": cell.seed}
    return {"event": event, **about, **more}


def test_the_hash_knows_every_value_and_no_order() -> None:
    one = ledger.settings_hash({"a": 1, "b": {"c": 2.0, "d": [1, 2]}})
    assert one == ledger.settings_hash({"b": {"d": [1, 2], "c": 2.0}, "a": 1})
    others: tuple[dict[str, object], ...] = (
        {"a": 2, "b": {"c": 2.0, "d": [1, 2]}},
        {"a": 1, "b": {"c": 2.5, "d": [1, 2]}},
        {"a": 1, "b": {"c": 2.0, "d": [2, 1]}},
        {"a": 1},
    )
    assert len({one, *map(ledger.settings_hash, others)}) == 5
    assert len(one) == 12
    assert int(one, 16) >= 0


def test_a_hash_does_not_change_from_one_process_to_the_next() -> None:
    assert ledger.settings_hash({"lr": 0.002, "steps": None}) == "f380a2c89f79"


def test_the_seed_is_no_part_of_the_hash_and_the_settings_are() -> None:
    pong = [cell for cell in cells.all_cells() if cell.what == "pong-time"]
    assert [cell.seed for cell in pong] == [1, 2, 3, 4, 5]
    assert len({cell.hash for cell in pong}) == 1
    assert "seed" not in pong[0].settings["experiment"]
    pqn = next(cell for cell in cells.all_cells() if cell.what == "pqn-time")
    assert pqn.settings["experiment"]["algorithm"]["type"] == "PQN"
    names = [cell.name for cell in cells.all_cells()]
    assert len(set(names)) == len(names) > 40


@dataclass(frozen=True)
class Part:
    lr: float = 0.1


@dataclass(frozen=True)
class Whole:
    games: str
    part: Part = field(default_factory=Part)


def test_the_hash_covers_what_is_not_a_default() -> None:
    assert timed.chosen(Whole("pong")) == {"type": "Whole", "games": "pong"}
    other = {"type": "Whole", "games": "pong", "part": {"type": "Part", "lr": 0.2}}
    assert timed.chosen(Whole("pong", Part(0.2))) == other


@pytest.mark.parametrize(
    ("means", "found", "asked"),
    [
        ([(17.9, 0)], None, [(0, False)]),
        ([(18.0, 18.0)], 0, [(0, False), (0, True)]),
        ([(18.5, 17.9), (19.0, 18.2)], 1, [(0, False), (0, True), (1, False), (1, True)]),
        ([(-21.0, 21.0), (18.2, 20.0)], 1, [(0, False), (1, False), (1, True)]),
        ([(18.5, 17.0), (3.0, 0)], None, [(0, False), (0, True), (1, False)]),
        ([(18.1, 18.1), (20.0, 20.0)], 0, [(0, False), (0, True)]),
        ([], None, []),
    ],
)
def test_the_first_confirmed_checkpoint(
    means: list[tuple[float, float]], found: int | None, asked: list[tuple[int, bool]]
) -> None:
    questions = []

    def mean(index: int, confirm: bool) -> float:
        questions.append((index, confirm))
        return means[index][confirm]

    assert ledger.first_confirmed(len(means), mean, 18.0) == found
    assert questions == asked


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([3.0, 1.0, 2.0], 2.0),
        ([4.0, 1.0, 2.0, 3.0], 2.5),
        ([100.0, None, 90.0, 110.0, None], 110.0),
        ([100.0, None, None], None),
        ([None, 5.0], None),
        ([], None),
    ],
)
def test_a_seed_that_never_got_there_is_worse_than_all(
    values: list[float | None], median: float | None
) -> None:
    assert ledger.median_of(values) == median


def test_the_steady_rate_leaves_out_the_start() -> None:
    lines = [
        {"seconds": 2.0, "steps": 100},
        {"seconds": 9.9, "steps": 9_000},
        {"seconds": 10.0, "steps": 10_000},
        {"seconds": 15.0, "steps": 99_000},
        {"seconds": 30.0, "steps": 70_000},
    ]
    assert ledger.steady_rate(lines) == 3_000.0
    assert ledger.steady_rate(lines[:3], after=2.0) == pytest.approx(9_900 / 8)
    with pytest.raises(ValueError, match="1 metrics lines after 10 s"):
        ledger.steady_rate(lines[:3])


def test_metrics_may_differ_in_their_times_only() -> None:
    one = [{"steps": 1, "seconds": 1.0, "kl": 0.5}, {"steps": 2, "seconds": 2.0, "kl": 0.25}]
    other = [{"steps": 1, "seconds": 1.5, "kl": 0.5}, {"steps": 2, "seconds": 9.0, "kl": 0.25}]
    assert ledger.differences(one, other) == []
    other[1]["kl"] = 0.2500001
    assert ledger.differences(one, other) == ["line 2: kl"]
    assert ledger.differences(one, other[:1]) == ["2 lines against 1"]
    assert ledger.differences(one[:1], [{"steps": 1, "seconds": 1.0}]) == ["line 1: kl"]


def test_only_cells_without_a_result_are_missing() -> None:
    a, b, c, d = cell("a", lr=1), cell("a", lr=2), cell("a", 2, lr=1), cell("d", lr=1)
    lines = [
        line(a, "started"),
        line(a, "failed", error="disk full"),
        line(a, "started"),
        line(a, "finished", result=1),
        line(b, "started"),
        line(c, "started"),
        line(c, "failed", error="x"),
    ]
    assert ledger.missing([a, b, c, d], lines) == [b, c, d]
    states = [ledger.state([n for n in lines if x.matches(n)]) for x in (a, b, c, d)]
    assert states == [
        "finished, 1 failed",
        "missing, 1 started without an end",
        "missing, 1 failed",
        "missing",
    ]


def test_a_result_is_not_replaced_by_a_better_one() -> None:
    lines = [{"event": "finished", "result": 120}, {"event": "finished", "result": 80}]
    first = ledger.finished(lines)
    assert first is not None
    assert first["result"] == 120


def test_every_start_and_every_end_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    book = ledger.Ledger(tmp_path / "ledger.jsonl")
    outcomes: Iterator[BaseException | dict[str, Any]] = iter(
        [RuntimeError("exit code 1"), KeyboardInterrupt(), {"seconds_to_solved": 99.5}]
    )

    def measured(own: Any, scratch: Path, log: Path) -> dict[str, Any]:
        assert list(scratch.iterdir()) == []
        (log / "output.txt").write_text("said")
        outcome = next(outcomes)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    own = ledger.Cell("a", 3, {"lr": 1}, measured)
    assert run.measure(own, book, 1, 1) is False
    with pytest.raises(SystemExit) as stopped:
        run.measure(own, book, 1, 1)
    assert stopped.value.code == 130
    assert ledger.missing([own], book.lines()) == [own]
    assert run.measure(own, book, 1, 1) is True
    assert ledger.missing([own], book.lines()) == []
    lines = [json.loads(text) for text in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [(n["event"], n["attempt"]) for n in lines] == [
        ("started", 1),
        ("failed", 1),
        ("started", 2),
        ("failed", 2),
        ("started", 3),
        ("finished", 3),
    ]
    assert [n["error"] for n in lines if n["event"] == "failed"] == [
        "RuntimeError: exit code 1",
        "stopped by hand",
    ]
    assert lines[-1]["result"] == {"seconds_to_solved": 99.5}
    assert {"processor", "cores", "torch", "ale-py", "commit"} <= lines[-1]["machine"].keys()
    logs = {n["log"] for n in lines}
    assert logs == {f"logs/{own.name}-{attempt}" for attempt in (1, 2, 3)}
    assert all((tmp_path / log / "output.txt").read_text() == "said" for log in logs)


def test_no_two_evaluations_play_the_same_games() -> None:
    seeds = [
        timed.evaluation_seed(seed, index, confirm, part)
        for seed in cells.SEEDS
        for index in range(200)
        for confirm in (False, True)
        for part in range(len(timed.PARTS))
    ]
    assert len(set(seeds)) == 5 * 200 * 2 * len(timed.PARTS)
    assert min(seeds) > 1_000_000


def test_seeds_without_a_cell_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.parse(["--seeds", "1,77"])
    assert stopped.value.code == 2
    assert "77: nothing is measured with this seed" in capsys.readouterr().err


def test_single_seeds_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list", "--only", "pong", "--seeds", "2,4"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {name.rpartition("-")[2] for name in names} == {"2", "4"}


def test_a_checkpoint_is_given_up_only_when_it_cannot_reach_the_mean() -> None:
    assert ledger.can_reach(18.0, [21.0] * 40 + [-21.0], 50)
    assert ledger.can_reach(18.0, [21.0] * 49 + [-129.0], 50)  # exactly 18
    assert not ledger.can_reach(18.0, [21.0] * 49 + [-130.0], 50)
    assert not ledger.can_reach(18.0, [-20.0] * 4, 50)
    assert ledger.can_reach(18.0, [], 50)
    assert ledger.can_reach(300.0, [0.0] * 30, 50, best=864.0)
    assert not ledger.can_reach(300.0, [0.0] * 33, 50, best=864.0)
