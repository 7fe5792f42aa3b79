"""The ledger's rules: which cell is which, when it is measured, and what a result is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cells, run
from benchmarks.lib import ledger, process, recipe, timed
from benchmarks.lib.recipe import within
from colobus.core.files import parse_lines
from helpers.made_runs import row, write_metrics
from helpers.players import add_checkpoint, write_run


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
    assert ledger.settings_hash({"lr": 0.002, "steps": None}) == "f380a2c89f79"  # in any process


@pytest.mark.parametrize(
    ("means", "found", "asked"),
    [
        ([(17.9, 0)], None, [(0, False)]),
        ([(18.0, 18.0)], 0, [(0, False), (0, True)]),
        ([(18.5, 17.9), (19.0, 18.2)], 1, [(0, False), (0, True), (1, False), (1, True)]),
        ([(-20.9, 21.0), (18.2, 20.0)], 1, [(0, False), (1, False), (1, True)]),
        ([(18.5, 17.0), (3.0, 0)], None, [(0, False), (0, True), (1, False)]),
        ([(18.1, 18.1), (20.0, 20.0)], 0, [(0, False), (0, True)]),
        ([], None, []),
    ],
)
def test_the_first_confirmed_checkpoint(
    means: list[tuple[float, float]],
    found: int | None,
    asked: list[tuple[int, bool]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each checkpoint's games have the first mean, and those that confirm it the second."""
    paths = [Path(f"{index}.json") for index in range(len(means))]
    seconds = {str(index): 10.0 * index for index in range(len(means))}
    questions: list[tuple[int, bool]] = []

    def played(agent: Any, protocol: str, games: int, seed: int) -> Any:
        index, part = divmod(seed - 1_010_000, 10)
        assert agent.checkpoint.steps == index
        questions.extend([] if part % 5 else [(index, part >= 5)])
        return SimpleNamespace(scores=[means[index][part >= 5]] * games, as_dict=dict)

    def load(path: Path) -> Any:
        return SimpleNamespace(checkpoint=SimpleNamespace(steps=int(path.stem)))

    line = {"result": {"checkpoints": seconds}}
    monkeypatch.setattr(timed, "trained", lambda cell: (tmp_path, line))
    monkeypatch.setattr(timed, "list_checkpoints", lambda folder: paths)
    monkeypatch.setattr(timed, "load", load)
    monkeypatch.setattr(timed, "played", played)
    result = timed.time_to_score(cell(procedure={"solved": 18.0}), tmp_path, tmp_path)
    assert questions == asked
    assert result["solved"] == (found is not None)
    assert result["steps_to_solved"] == found
    assert result["seconds_to_solved"] == (None if found is None else 10.0 * found)
    assert [one["mean"] for one in result["evaluated"]] == [
        mean for mean, _ in means[: len(result["evaluated"])]
    ]


def test_the_steady_rate_leaves_out_the_start() -> None:
    lines = [
        {"seconds": 2.0, "steps": 100},
        {"seconds": 9.9, "steps": 9_000},
        {"seconds": 10.0, "steps": 10_000},
        {"seconds": 15.0, "steps": 99_000},
        {"seconds": 30.0, "steps": 70_000},
    ]
    assert timed.steady_rate(lines) == 3_000.0
    assert timed.steady_rate(lines[:3], after=2.0) == pytest.approx(9_900 / 8)
    with pytest.raises(ValueError, match="1 metrics lines after 10 s"):
        timed.steady_rate(lines[:3])


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


def test_every_start_and_end_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RESULTS", tmp_path)
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
    lines = book.lines()
    ends = ["started", "failed", "started", "failed", "started", "finished"]
    assert [n["event"] for n in lines] == ends
    assert [n["attempt"] for n in lines] == [1, 1, 2, 2, 3, 3]
    assert [n["error"] for n in lines if n["event"] == "failed"] == [
        "RuntimeError: exit code 1",
        "stopped by hand",
    ]
    assert lines[-1]["result"] == {"seconds_to_solved": 99.5}
    assert {"processor", "cores", "torch", "ale-py", "commit"} <= lines[-1]["machine"].keys()
    assert {n["log"] for n in lines} == {f"logs/{own.name}-{attempt}" for attempt in (1, 2, 3)}
    for line in lines:
        assert ledger.unpacked(ledger.archive_of(line), "output.txt") == "said"


def test_an_archive_keeps_the_ends_of_metrics_and_what_figures_need(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    rows = [{"steps": n, "seconds": n / 3, "score": n / 7, "kl": n / 9} for n in range(1000)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "1-metrics.jsonl").write_text(text + '{"steps": 5')  # cut off
    (folder / "output.txt").write_text("said")
    ledger.pack(folder, tmp_path / "a.tar.xz")
    ledger.pack(folder, tmp_path / "b.tar.xz")
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()
    kept = parse_lines(ledger.unpacked(tmp_path / "a.tar.xz", "1-metrics.jsonl"))
    assert (kept[0], kept[-1]["steps"], len(kept)) == (rows[0], 999, ledger.LINES + 1)
    assert kept[-1] == {"steps": 999, "seconds": 333.0, "score": 142.7143, "kl": 111.0}
    assert ledger.unpacked(tmp_path / "a.tar.xz", "output.txt") == "said"


def test_every_line_with_a_result_has_its_archive() -> None:
    lines = [line for line in ledger.Ledger().lines() if line["event"] == "finished"]
    assert [line["log"] for line in lines if not ledger.archive_of(line).exists()] == []
    kept = sum(file.stat().st_size for file in (ledger.RESULTS / "logs").iterdir())
    assert kept < 5e6


def test_the_last_checkpoint_of_the_first_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [{"steps": 1000 * n, "seconds": 10.0 * n} for n in range(1, 7)]
    steps = {Path("1"): 1000, Path("2"): 2500, Path("3"): 5000}
    monkeypatch.setattr(recipe, "read_about", lambda path: SimpleNamespace(steps=steps[path]))
    assert within(50.0, metrics, list(steps)) == (Path("3"), {"steps": 5000, "seconds": 50.0})
    assert within(49.0, metrics, list(steps)) == (Path("2"), {"steps": 2500, "seconds": 30.0})
    with pytest.raises(LookupError, match="within 5 seconds"):
        within(5.0, metrics, list(steps))


def test_an_early_checkpoint_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(words: list[str], run: Path, log: Path) -> process.Outcome:
        write_run(run)  # after 1,000 steps
        add_checkpoint(run, 3, 500)
        write_metrics(run, [row(500, 11.0, 0.0), row(1000, 13.0, 0.0)])
        return process.Outcome(0, "", "", 0.0, 13.0, 10**6)

    monkeypatch.setattr(timed, "train", train)
    more: dict[str, Any] = {"protocol": "training", "early": (0.2,)}
    (plan,) = cells.course("default-games", ("catch",), (1,), 0.25, **more)
    own = ledger.Cell(plan.what, 1, cells.settings(plan), plan.measure, plan.preset)
    result = own.measure(own, tmp_path, tmp_path)
    early = result["early"]["0.2"]
    assert (early["steps"], early["seconds"]) == (500, 11.0)
    assert (result["steps"], result["seconds"]) == (1000, 13.0)
    assert -1.0 <= early["score"] <= 1.0
    assert (tmp_path / "minute-0.2-evaluations.jsonl").exists()
