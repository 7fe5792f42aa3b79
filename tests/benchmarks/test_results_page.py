"""docs/results.md is what the ledger says, and says beside a figure what else was measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ledger
import lookup
import page
import remarks
import results_page
import sections
import sections_default
import sections_ray
import targets

ROOT = Path(__file__).resolve().parents[2]

GROWING = {
    targets.ACT,
    targets.ALL_PARTS,
    targets.LIVE,
    targets.PARTS,
    "Parts of APPO on Pong",
    "The autoencoder's cost",
    "Breakout",
    sections_default.SIX,
    sections_default.MEANS,
    sections_default.FIVE,
}
"""Sections whose rows are measured one by one."""

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}


def only(lines: list[dict[str, Any]], what: str = "pong-time") -> lookup.Found:
    found = lookup.Results(lines).one(what)
    assert found is not None
    return found


def line(
    what: str, settings: str, time: str, seed: int = 1, event: str = "finished", **result: Any
) -> dict[str, Any]:
    about = {"event": event, "what": what, "settings": settings, "seed": seed}
    ended = {"error": "disk full"} if event == "failed" else {"result": result}
    return {**about, "time": f"2026-01-{time}", "machine": MACHINE, **ended}


def timed(settings: str, time: str, seconds: float | None, seed: int = 1) -> dict[str, Any]:
    solved: dict[str, Any] = {
        "seconds_to_solved": seconds,
        "steps_to_solved": seconds and int(1000 * seconds),
    }
    return line("pong-time", settings, time, seed, **solved)


def test_the_committed_page_is_what_the_command_writes() -> None:
    assert results_page.PAGE.read_text(encoding="utf-8") == results_page.page()


def test_the_readme_has_the_short_table_that_the_command_writes() -> None:
    assert results_page.README.read_text(encoding="utf-8") == results_page.readme()


def test_the_page_of_appo_has_the_tables_that_the_command_writes() -> None:
    assert results_page.APPO.read_text(encoding="utf-8") == results_page.appo()


def test_the_first_finished_line_of_the_newest_settings_counts() -> None:
    lines = [
        timed("old", "01", 50.0),
        timed("new", "02", 90.0),
        timed("new", "03", 10.0),  # a better one does not replace the first
        timed("old", "04", 20.0),  # settings are as new as their first result
    ]
    found = only(lines)
    assert found.line["result"]["seconds_to_solved"] == 90.0
    assert [one["result"]["seconds_to_solved"] for one in found.earlier] == [50.0]


def test_seeds_are_in_order_and_each_has_its_newest_settings() -> None:
    lines = [timed("a", "03", 3.0, 3), timed("a", "01", 1.0, 1), timed("b", "04", 4.0, 1)]
    found = lookup.Results(lines).seeds("pong-time")
    assert [one.line["result"]["seconds_to_solved"] for one in found] == [4.0, 3.0]


def test_a_run_is_found_for_the_evaluation_of_its_checkpoints() -> None:
    trained = [
        line("pong-train", "x", "01", command="gelada train pong --seed 1 --out RUNS/x"),
        line("pong-train", "y", "03", command="later"),
    ]
    found = only([*trained, timed("a", "02", 3.0)])
    assert found.trained is not None
    assert found.trained["result"]["command"].startswith("gelada train pong")
    (text,) = page.how([found])
    assert text.startswith("`gelada train pong`; seed 1; Xeon, 2 cores")


@pytest.mark.parametrize(
    ("what", "result", "variant"),
    [
        ("general-games", {"game": "freeway"}, "freeway"),
        ("default-hour-games", {"game": "freeway"}, "freeway"),
        ("ray-limit", {"preset": "pong"}, "pong"),
        ("ray-failure", {"command": "gelada x --chaos kill=worker:40s"}, "worker kill"),
        ("ray-killed", {"command": "gelada x --faults kill=any:30s"}, "any kill"),
        ("ray-killed", {"command": "gelada x"}, ""),
        ("ray-host", {"hit": {"how": "freeze"}}, "freeze"),
        ("dba3c-delay", {"command": "gelada x --chaos delay=16"}, "16"),
        ("dba3c-delay", {"command": "gelada x"}, "0"),
        ("gorila-time", {"threshold": 15.0}, "mean 15"),
        ("gorila-time", {"threshold": 18.0}, ""),
        ("memory", {}, ""),
        ("ladder-tune", {"rung": "ppo", "number": 3}, "ppo 3"),
        ("ladder-breakout", {"rung": "ppo", "score": 30.0}, "ppo"),
        ("autoencoder-games", {"game": "qbert"}, "qbert"),
    ],
)
def test_a_line_tells_its_variant(what: str, result: dict[str, Any], variant: str) -> None:
    assert lookup.variant(line(what, "x", "01", **result)) == variant


def test_earlier_and_failed_measurements_are_remarks_on_the_figure() -> None:
    lines = [
        timed("old", "01", None),
        line("pong-time", "new", "02", event="failed"),
        timed("new", "03", 90.0),
    ]
    text = " ".join("\n".join(sections.pong(lookup.Results(lines)).lines()).split())
    assert "| seconds to Pong | 90 |" in text
    assert "seed 1 was measured before with other settings or code: the score was not" in text
    assert "a start that failed: disk full" in text
    assert "2026-01-03, commit `abc`" in text


def test_the_table_shows_medians_and_every_seed() -> None:
    lines = [timed("a", f"0{n}", s, n) for n, s in ((1, 101.4), (2, None), (3, 90.0))]
    rows = {row.label: row.cells for row in sections.pong(lookup.Results(lines)).rows}
    assert rows["seconds to Pong"][1] == "**101** (101, never, 90)"
    assert rows["steps to Pong"][1] == "**101,400** (101,400, never, 90,000)"
    assert rows["share of the machine's limit"][1] == "not measured yet"


def test_steps_that_were_played_again_count_in_the_cost_of_kills() -> None:
    names = ("steps", "lost_steps", "seconds", "hits", "restored")
    hit: dict[str, Any] = dict(zip(names, (800, 200, 300.0, 3, 2), strict=True))
    calm: dict[str, Any] = dict(zip(names, (500, 0, 200.0, 0, 0), strict=True))
    lines = [
        line("ray-killed", "a", "01", command="x --faults kill=any:30s", **hit),
        line("ray-killed", "b", "02", command="x", **calm),
    ]
    first, second = sections_ray.killed(lookup.Results(lines)).rows
    assert first.cells[-2:] == ("2.00", "1.50")
    assert second.cells[-2:] == ("1", "1")


def test_every_remark_and_every_variant_is_about_a_line_of_the_ledger() -> None:
    lines = ledger.Ledger(ledger.LEDGER).lines()
    known = {(x["what"], x["settings"], seed) for x in lines for seed in (0, x["seed"])}
    assert set(remarks.REMARKS) - known == set()
    assert set(lookup.VARIANTS) - {x["settings"] for x in lines} == set()


def test_freeways_first_score_is_told() -> None:
    text = re.sub(r"\s+", " ", results_page.page())
    assert "freeway: seed 1 was measured before with other settings or code: 0.0 ± 0.0" in text


def test_every_target_has_its_row() -> None:
    found = results_page.all_sections()
    there = {(one.title, row.label) for one in found for row in one.rows}
    lines = targets.summary(found)
    assert len(lines) == len(targets.TARGETS) + 2
    for target, line in zip(targets.TARGETS, lines[2:], strict=True):
        known = (target.section, target.row) in there
        assert known or target.section in GROWING, line
        assert ("not measured yet" in line) != known or target.section in GROWING


def test_targets_are_spoken_of_in_benchmarks_only() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = [
        f"{file.name}: {word}"
        for file in pages
        for word in re.findall(r"\*[Mm]ust\*|\bgoals?\b|\| must \|", file.read_text("utf-8"))
    ]
    assert found == []
