"""The ladder: equal tuning, what is chosen, its tables, and all of it in miniature on Catch."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import autoencoders
import intervals
import ladder
import ledger
import lookup
import process
import run
import sections_appo
from cells import SEEDS
from gelada.cli import main as cli
from ladder import BREAKOUT, DRAWS, HEADLINE, LADDER, PONG, RUNGS, TRIES, Course, Ladder

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}


def finished(cell: ledger.Cell, **result: Any) -> dict[str, Any]:
    about = {"event": "finished", "what": cell.what, "settings": cell.hash, "seed": cell.seed}
    return {**about, "time": "2026-01-01", "machine": MACHINE, "result": result}


def tried(name: str, number: int, score: float | None, steps: int = 250_000) -> dict[str, Any]:
    cell = LADDER.try_cell(name, number)
    return finished(cell, rung=name, number=number, score=score, steps=steps)


def played(name: str, seed: int, steps: int | None, run_steps: int = 900_000) -> dict[str, Any]:
    result = {
        "rung": name,
        "chosen": list(DRAWS[0]) if RUNGS[name].tuned else [],
        "command": f"gelada train {RUNGS[name].preset('pong')} --seed {seed}",
        "steps_to_solved": steps,
        "run_steps": steps or run_steps,
        "processor_ms": 0.6,
        "score": 18.5,
        "standard_error": 0.3,
    }
    return finished(LADDER.run_cell(name, PONG, seed), **result)


def in_breakout(name: str, seed: int, cost: float, score: float) -> dict[str, Any]:
    result = {"rung": name, "run_steps": 400, "processor_ms": cost, "score": score}
    return finished(LADDER.run_cell(name, BREAKOUT, seed), **result)


def test_every_rung_has_the_same_tries_on_seeds_that_are_not_measured() -> None:
    tries: dict[str, list[tuple[int, Any, int]]] = {}
    for cell in LADDER.cells():
        asked = cell.settings["procedure"]
        if cell.what == "ladder-tune":
            own = (cell.seed, asked["draw"], asked["steps"])
            tries.setdefault(asked["rung"], []).append(own)
            assert cell.seed not in SEEDS
        else:
            assert cell.seed in SEEDS
    assert tries.keys() == {name for name, rung in RUNGS.items() if rung.tuned}
    assert [asked for _, asked, _ in tries["impala"]] == [DRAWS[number] for number in TRIES]
    assert all(own == tries["impala"] for own in tries.values())


def test_the_draws_are_different_and_each_rate_is_drawn_twice() -> None:
    assert len(set(DRAWS)) == len(DRAWS) == 2 * len(ladder.RATES)
    assert Counter(draw[1] for draw in DRAWS) == dict.fromkeys(ladder.RATES, 2)
    assert ladder.draws() == DRAWS  # whenever they are drawn


def test_each_rung_is_measured_right_after_its_tries() -> None:
    cells, known = LADDER.cells(), Counter[str]()
    for cell in cells:
        name = cell.settings["procedure"]["rung"]
        if cell.what == "ladder-tune":
            known[name] += 1
        elif RUNGS[name].tuned:
            assert known[name] == len(TRIES)
    whats = [cell.what for cell in cells]
    assert whats[:3] == ["ladder-pong", "ladder-pong", "ladder-tune"]  # two need no tuning
    assert whats[2:][:5] == ["ladder-tune"] * 4 + ["ladder-pong"]
    assert len({cell.name for cell in cells}) == len(cells)
    steps = [RUNGS[name].flags for name in ("impala", "ppo", "replay")]
    assert all(more[: len(less)] == less for less, more in pairwise(steps))


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_can_be_trained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rung, draw = RUNGS[name], DRAWS[list(RUNGS).index(name) % len(DRAWS)]
    for game in ("pong", "breakout"):
        words = ["show", rung.preset(game), *rung.flags, *(draw if rung.tuned else ()), "--json"]
        assert cli.run(words) == 0, capsys.readouterr().err
        chosen = json.loads(capsys.readouterr().out)["settings"]
        if rung.tuned:
            assert chosen["algorithm"]["advantage"] == "vtrace"
            assert (chosen["algorithm"]["lr"], chosen["algorithm"]["entropy_end"]) == (
                float(draw[1]),
                float(draw[5]),
            )
            assert chosen["shape"]["length"] == int(draw[7])


def test_the_best_try_is_chosen() -> None:
    lines = [
        tried("ppo", 0, -15.0),
        tried("ppo", 1, 18.0, 240_000),
        tried("ppo", 4, 18.0, 200_000),  # as good, sooner
        tried("ppo", 5, None, 0),  # diverged
    ]
    assert LADDER.best("ppo", lines) == DRAWS[4]
    with pytest.raises(LookupError, match="ladder-tune must be measured first: ppo, draw 5"):
        LADDER.best("ppo", lines[:3])
    with pytest.raises(LookupError, match="impala"):
        LADDER.best("impala", lines)
    nothing = [tried("ppo", number, None) for number in TRIES]
    with pytest.raises(LookupError, match="no try has a score"):
        LADDER.best("ppo", nothing)


def test_what_is_timed_is_the_best_try() -> None:
    """Its flags are written down, as a cell's settings cannot depend on what was measured."""
    best = LADDER.best("appo", ledger.Ledger(ledger.LEDGER).lines())
    assert dict(zip(best[::2], best[1::2], strict=True)).items() <= HEADLINE.flags.items()


def test_a_score_is_reached_at_its_first_line() -> None:
    names = ("seconds", "steps", "score")
    rows = [(5.0, 10, None), (6.0, 20, 3.0), (7.0, 30, 18.0), (8.0, 40, 17.0), (9.0, 50, 19.0)]
    metrics = [dict(zip(names, row, strict=True)) for row in rows]
    assert ladder.reached(metrics, 18.0) == {"steps_to_solved": 30}
    assert ladder.reached(metrics, 20.0) == {"steps_to_solved": None}
    assert ladder.reached(metrics, None) == {}


def test_intervals_are_students() -> None:
    found = intervals.interval([1.0, 2.0, 3.0])
    assert found is not None
    assert found.mean == 2.0
    assert found.high - found.mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-4)
    assert found.low == pytest.approx(4.0 - found.high)
    assert found.shown("{:.1f}") == "2.0 (-0.5 to 4.5)"
    assert intervals.interval([1.0]) is None
    logs = intervals.geometric([10.0, 1000.0])
    assert logs is not None
    assert logs.mean == pytest.approx(100.0)
    assert logs.high / logs.mean == pytest.approx(logs.mean / logs.low)


def test_nothing_is_said_of_what_is_not_measured() -> None:
    assert sections_appo.sections(lookup.Results([])) == []
    assert sections_appo.ladder_block(lookup.Results([])) == "It has not been measured yet.\n"


def test_breakout_after_equal_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longer run counts as it was when the shorter one ended."""
    scores = {"appo": [None, 10.0, 20.0, 60.0], "default": [None, 5.0, 10.0, 20.0]}
    steps = [100, 200, 300, 400]

    def metrics(line: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"steps": count, "score": score}
            for count, score in zip(steps, scores[line["result"]["rung"]], strict=True)
        ]

    monkeypatch.setattr(sections_appo, "logged_metrics", metrics)
    lines = [in_breakout("appo", 1, 2.0, 60.0), in_breakout("default", 1, 1.5, 20.0)]
    results = lookup.Results(lines)
    appo, default = (results.seeds("ladder-breakout", name) for name in ("appo", "default"))
    assert sections_appo.after_equal_time(appo, default) == 1.0  # 600 ms: 20 and 20
    assert sections_appo.after_equal_time(default, appo) == 1.0
    for line, cost in zip(lines, (1.0, 2.0), strict=True):
        line["result"]["processor_ms"] = cost
    assert sections_appo.after_equal_time(appo, default) == 12.0  # 400 ms: 60 and 5
    rows = {row.label: row.cells[2] for row in sections_appo.best(results).rows}
    assert rows == {
        "Breakout after equal steps, `ppo-` = 1": "3.00",
        "Breakout after equal processor time, `ppo-` = 1": "12.00",
    }


def test_runs_of_impala_that_never_reach_18_are_counted() -> None:
    lines = [played("impala", seed, 800_000 if seed == 2 else None) for seed in (1, 2, 3)]
    lines += [played("ppo", seed, 400_000) for seed in (1, 2, 3)]
    (row,) = sections_appo.best(lookup.Results(lines)).rows
    assert row.cells[2].startswith("at most 0.")
    assert row.cells[2].endswith(": 2 of 3 runs of IMPALA did not reach it")


def test_parts_that_need_as_many_steps_are_both_named() -> None:
    lines = [played("impala", 1, 800_000), played("replay", 1, 400_000)]
    lines += [played("appo", 1, 400_000), played("ppo", 1, 600_000)]
    (row,) = sections_appo.best(lookup.Results(lines)).rows
    assert row.cells[1] == f"{RUNGS['replay'].label}; {RUNGS['appo'].label}"
    assert row.cells[2] == "0.50"


def test_the_tables_of_the_ladder() -> None:
    lines = [played("impala", seed, None if seed == 2 else 800_000) for seed in (1, 2, 3)]
    lines += [played("ppo", seed, 400_000) for seed in (1, 2, 3)]
    lines.append(played("default", 1, 300_000))
    results = lookup.Results(lines)
    table, best = (make(results) for make in (sections_appo.ladder_pong, sections_appo.best))
    rows = {row.label: row.cells for row in table.rows}
    assert list(rows) == [RUNGS[name].label for name in ("impala", "ppo", "default")]
    impala, ppo, default = rows.values()
    assert ppo[1] == ", ".join(DRAWS[0][place] for place in (1, 3, 7))
    assert ppo[2] == "**400,000** (400,000, 400,000, 400,000)"
    assert ppo[3] == "400,000 (400,000 to 400,000)"
    assert impala[2] == "**800,000** (800,000, never, 800,000)"
    assert impala[3].startswith("at least 832,03")
    assert ppo[4:6] == ("0.60", "**4.0** (4.0, 4.0, 4.0)")
    assert impala[5] == "**8.0** (8.0, never, 8.0)"
    assert default[1] == "-"
    assert default[3] == ""  # one seed has no interval
    (row,) = best.rows
    assert row.cells == ("Pong, steps to 18, IMPALA = 1", RUNGS["ppo"].label, "0.50")
    text = sections_appo.ladder_block(results)
    assert "| IMPALA | 0.0005" in text
    assert "(results.md#parts-of-appo-on-pong)" in text
    assert all(section.lines() for section in sections_appo.sections(results))


def test_how_much_sooner_a_score_is_reached() -> None:
    def curve(*points: tuple[int, float]) -> list[dict[str, Any]]:
        return [{"steps": s, "score": y, "seconds": s / 10} for s, y in points]

    slow, fast = curve((10, 0.0), (40, 5.0), (80, 7.0)), curve((10, 1.0), (30, 7.5), (60, 9.0))
    found = {"level": 7.0, "steps": [80, 30], "ratio": 0.375}
    assert autoencoders.sooner(slow, fast) == found
    assert autoencoders.sooner(fast, slow) == {**found, "steps": [30, 80], "ratio": 2.6667}


def in_this_process(words: list[str], output: Path, program: Any) -> process.Outcome:
    """Take the place of a process of its own, which would import everything anew."""
    assert program == (process.GELADA,)
    began = time.time()
    assert cli.run(words) == 0
    output.write_text("said")
    return process.Outcome(began, time.time() - began, 1.5, 0, 0, 0)


def test_a_rung_is_tuned_and_learns_catch_in_miniature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "run", in_this_process)
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setattr(ladder, "LEDGER", tmp_path / "ledger.jsonl")
    book = ledger.Ledger(tmp_path / "ledger.jsonl")
    flags = {"--until-score": "0.5", "--steps": "150000"}
    small = Ladder(
        "catch",
        steps=2_000,
        draws={0: ("--lr", "0.002"), 1: ("--lr", "0.003")},
        courses=(Course("catch", flags, solved=0.5),),
        rungs={"predict": RUNGS["predict"]},
        seeds=(1,),
        episodes=50,
    )
    *tries, last = small.cells()
    with pytest.raises(LookupError):
        last.measure(last, tmp_path, tmp_path)
    assert all(run.measure(cell, book, 1, 3) for cell in (*tries, last))
    first, second, found = (ledger.result_of(cell, book.lines()) for cell in small.cells())
    assert first is not None
    assert second is not None
    assert found is not None
    assert first["steps"] >= 2_000
    better = max((first, second), key=lambda one: one["score"])
    assert found["chosen"] == list(small.draws[better["number"]])
    assert "--autoencoder predict" in found["command"]
    assert found["steps_to_solved"] <= 150_000
    assert found["score"] > 0.0
    assert found["processor_ms"] == pytest.approx(1500.0 / found["run_steps"], rel=1e-2)
    assert "--deterministic" in found["command"]
    logs = [line["log"] for line in book.lines() if line["event"] == "finished"]
    for log in logs:
        assert {"config.json", "metrics.jsonl.gz"} <= {f.name for f in (tmp_path / log).iterdir()}
