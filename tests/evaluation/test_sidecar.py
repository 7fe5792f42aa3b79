"""Which checkpoints are evaluated and filmed beside a training, and which are passed over."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colobus.core.checkpoint import by_age
from colobus.core.functions import NoPictures
from colobus.evaluation import sidecar
from colobus.evaluation.agent import Agent, load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.protocols import Evaluation
from colobus.evaluation.sidecar import RunEnded, Sidecar
from helpers.players import add_checkpoint, decoded, write_run

Results = list[dict[str, Any]]


def make_run(folder: Path, *versions: int) -> Path:
    """Write a Catch run with a checkpoint of each version; 100 steps a version."""
    write_run(folder)
    for path in (folder / "checkpoints").iterdir():
        path.unlink()
    for version in versions:
        add_checkpoint(folder, version)
    return folder


def delete(path: Path) -> None:
    path.with_suffix(".json").unlink()
    path.unlink()


def told(results: Results) -> list[tuple[Any, ...]]:
    return [(r["kind"], r.get("version"), r.get("skipped")) for r in results]


def make_sidecar(
    run: Path, evaluate: bool = True, record: bool = False, every: bool = False
) -> tuple[Any, Results]:
    results: Results = []
    worker = Sidecar(run, evaluate, record, results.append, lambda: False, 2.0, every=every)
    return worker, results


def test_the_newest_is_evaluated_and_filmed_and_older_ones_are_skipped(tmp_path: Path) -> None:
    run = make_run(tmp_path, 3, 5, 8)
    worker, results = make_sidecar(run, record=True)
    assert worker.do_next()
    assert told(results) == [("evaluation", 8, 2), ("film", 8, 2)]
    score, film = results
    info = json.loads((run / "eval" / "800-dba3c-50-greedy-seed0.json").read_text())
    wanted = {"steps": 800, "version": 8, "seconds": 4.0, "width": 16, "episodes": 50}
    assert {name: info[name] for name in wanted} == wanted
    assert (info["policy"], len(info["scores"])) == ("greedy", 50)
    assert score == {
        "kind": "evaluation",
        "steps": 800,
        "version": 8,
        "mean": sum(info["scores"]) / 50,
        "max": max(info["scores"]),
        "standard_error": info["standard_error"],
        "games": 50,
        "asked": 50,
        "skipped": 2,
        "file": str(run / "eval" / "800-dba3c-50-greedy-seed0.json"),
    }
    assert -1 < score["mean"] < 1
    assert film["file"] == str(run / "videos" / "800.mp4")
    assert film["seconds"] == pytest.approx(2.0)  # 12 boards: a game of 9, and 3 of the next
    assert film["games"] == 2
    assert len(decoded(film["file"])[0]) == 12
    files = [path.name for folder in ("eval", "videos") for path in (run / folder).iterdir()]
    assert files == ["800-dba3c-50-greedy-seed0.json", "800.mp4"]


def test_what_comes_meanwhile_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing that remembered what is there was made before the one that chose."""
    run = make_run(tmp_path, 3)
    worker, results = make_sidecar(run)

    def after_two_more(folder: Path) -> list[Path]:
        for version in (5, 8):
            add_checkpoint(run, version)
        return by_age(folder)

    monkeypatch.setattr("colobus.evaluation.sidecar.by_age", after_two_more)
    assert worker.do_next()
    assert told(results) == [("evaluation", 8, 2)]


def test_evaluations_need_no_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*_: object, **__: object) -> None:
        raise NoPictures("walk cannot be shown")

    monkeypatch.setattr(sidecar, "film_games", record)
    run = make_run(tmp_path, 3, 5)
    worker, results = make_sidecar(run, record=True, every=True)
    assert worker.do_next()
    assert worker.do_next()
    assert [each["kind"] for each in results] == ["evaluation", "passed over", "evaluation"]
    assert results[1]["why"] == "walk cannot be shown"
    worker, _ = make_sidecar(run, evaluate=False, record=True)
    with pytest.raises(NoPictures):  # films are all that was asked for
        worker.do_next()


def test_every_one_is_done_the_oldest_first(tmp_path: Path) -> None:
    run = make_run(tmp_path, 5)
    assert make_sidecar(run)[0].do_next()
    for version in (3, 8, 9):
        add_checkpoint(run, version)
    (run / "checkpoints" / "00000008.safetensors").write_bytes(b"damaged")
    worker, results = make_sidecar(run, every=True)
    assert [worker.do_next() for _ in range(3)] == [True, True, False]
    add_checkpoint(run, 8)
    add_checkpoint(run, 12)
    assert [worker.do_next() for _ in range(3)] == [True, True, False]
    done = [one[1] for one in told(results) if one[0] == "evaluation"]
    assert done == [3, 9, 8, 12]
    assert [one[0] for one in told(results)].count("passed over") == 1


def test_none_is_done_twice_not_even_by_a_second_start(tmp_path: Path) -> None:
    run = make_run(tmp_path, 3, 5)
    worker, results = make_sidecar(run)
    assert [worker.do_next() for _ in range(3)] == [True, False, False]
    again, more = make_sidecar(run)
    assert not again.do_next()  # nor an older one
    for version in (6, 7, 9):
        add_checkpoint(run, version)
    assert [again.do_next(), again.do_next(), worker.do_next()] == [True, False, False]
    assert told(results + more) == [("evaluation", 5, 1), ("evaluation", 9, 2)]
    worker, results = make_sidecar(run, record=True)
    assert worker.do_next()
    assert told(results) == [("film", 9, 4)]  # all that is missing


def test_a_damaged_checkpoint_is_passed_over_with_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path, 3, 5)
    newest = run / "checkpoints" / "00000005.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    worker, results = make_sidecar(run)
    assert [worker.do_next() for _ in range(3)] == [True, False, False]
    assert told(results) == [("passed over", None, None), ("evaluation", 3, 0)]
    assert results[0]["file"] == str(newest)
    assert "00000005.safetensors is truncated or damaged" in results[0]["why"]
    add_checkpoint(run, 5)  # written anew, as after a resume
    assert worker.do_next()
    assert told(results[2:]) == [("evaluation", 5, 0)]


@pytest.mark.parametrize("damaged", [True, False], ids=["damaged", "being written"])
def test_one_without_its_json_is_passed_over(tmp_path: Path, damaged: bool) -> None:
    run = make_run(tmp_path, 3, 5)
    (run / "checkpoints" / "00000005.json").unlink()
    if damaged:
        (run / "checkpoints" / "00000005.json").write_text("{}")
    worker, results = make_sidecar(run)
    assert [worker.do_next(), worker.do_next()] == [True, False]
    said = [("passed over", None, None)] if damaged else []  # otherwise quietly
    assert told(results) == [*said, ("evaluation", 3, 0)]


def test_one_deleted_meanwhile_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, 3, 5)

    def late(path: Path) -> Agent:
        if path.stem == "00000005":
            delete(path)
        return load(path)

    monkeypatch.setattr(sidecar, "load", late)
    worker, results = make_sidecar(run)
    assert worker.do_next()
    assert told(results) == [("evaluation", 3, 0)]


def test_a_first_checkpoint_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "POLL_SECONDS", 0.01)
    assert not make_sidecar(tmp_path / "not made yet")[0].do_next()
    run = make_run(tmp_path)
    results: list[Any] = []
    asked: list[int] = []

    def until() -> bool:
        asked.append(1)
        if len(asked) == 5:
            assert results == []
            add_checkpoint(run, 2)
        return bool(results)

    Sidecar(run, True, False, results.append, until).work()
    assert told(results) == [("evaluation", 2, 0)]


def while_playing(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[Callable[[int, int], None]], None]
) -> None:
    """Let something happen during the next evaluation; it gets what reports progress."""
    play = evaluate
    todo = [happens]

    def slow(
        agent: Agent, protocol: str, progress: Callable[[int, int], None], **given: Any
    ) -> Evaluation:
        if todo:
            todo.pop()(progress)
        return play(agent, protocol, progress=progress, **given)

    monkeypatch.setattr(sidecar, "play_games", slow)


def test_checkpoints_that_came_and_went_during_a_game_are_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "POLL_SECONDS", 0.0)
    run = make_run(tmp_path, 3)

    def training_goes_on(progress: Callable[[int, int], None]) -> None:
        for version in (4, 5, 6, 7):
            path = add_checkpoint(run, version)
            progress(0, 50)
            if version < 7:
                delete(path)

    while_playing(monkeypatch, training_goes_on)
    worker, results = make_sidecar(run)
    assert [worker.do_next() for _ in range(3)] == [True, True, False]
    assert told(results) == [("evaluation", 3, 0), ("evaluation", 7, 3)]


@pytest.mark.parametrize("record", [False, True])
def test_when_the_run_ends_nothing_more_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    """The work in progress leaves no file; nor is there a last evaluation."""
    run, asked = make_run(tmp_path, 3), itertools.count(1)
    results: Results = []
    over: list[bool] = []
    while_playing(monkeypatch, lambda _: over.append(True))

    def until() -> bool:
        return bool(over) or (record and next(asked) > 20)  # in the middle of the film

    worker = Sidecar(run, not record, record, results.append, until, 30.0)
    with pytest.raises(RunEnded):
        worker.do_next()
    Sidecar(run, not record, record, results.append, until).work()
    assert results == []
    left = [path for name in ("eval", "videos") for path in (run / name).glob("*")]
    assert left == []
