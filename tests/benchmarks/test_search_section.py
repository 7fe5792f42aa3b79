"""The section of docs/results.md about the search says what each candidate reached."""

from __future__ import annotations

from typing import Any

from candidates import FIRST, SECOND
from sections_search import different, sections
from tried import GAMES

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}


def candidate(number: int) -> dict[str, Any]:
    return {"kind": "candidate", "candidate": number, "round": 0, "settings": FIRST[number]}


def played(number: int, game: str, level: int, score: float | None) -> dict[str, Any]:
    line = {"kind": "run", "candidate": number, "game": game, "level": level, "score": score}
    about = {"steps": 300_000, "seconds": 150.0, "trouble": "" if score else "it diverged"}
    return {**line, **about, "machine": MACHINE, "time": "2026-01-01T00:00:00+00:00"}


def test_a_search_without_a_finished_run_has_no_section() -> None:
    assert sections([]) == []
    assert sections([candidate(0)]) == []


def test_the_highest_level_comes_first_and_in_it_the_best_candidate() -> None:
    lines = [candidate(number) for number in range(3)]
    lines += [played(0, game, 0, 100.0) for game in GAMES]
    lines += [played(1, game, 0, 200.0) for game in GAMES]
    lines += [played(2, "qbert", 0, 5000.0), played(2, "freeway", 0, None)]
    lines += [played(1, "qbert", 1, 1234.5)]
    (section,) = sections(lines)
    rows = [row.cells for row in section.rows]
    assert [row[:2] for row in rows] == [
        ("1", "10, 11"),
        ("1", "2.5, 11"),
        ("0", "2.5, 11"),
        ("2", "2.5, 11"),
    ]
    assert rows[0][2:] == ("1,234", "", "", "", "", "", "2,000", "dqn, plain")
    assert rows[1][6].startswith("**")
    assert rows[3][2:8] == ("5,000", "", "diverged", "", "", "")
    assert list(section.measured) == [
        "11 runs, on average 2,000 steps a second",
        "11 runs: Xeon, 2 cores, 24 GiB; 2026-01-01, commit `abc`",
    ]
    assert all(len(cells) == len(section.head) for cells in rows)


def test_settings_are_told_by_what_differs_from_the_plain_ones_of_the_family() -> None:
    assert different(FIRST[0]) == "appo, plain"
    assert different(SECOND[0]) == "dqn: values as histograms, no target network"
    assert different(SECOND[2]) == "dqn: values as histograms, duelling heads"
    assert different(FIRST[4]) == (
        "dqn: values as quantiles, munchausen 0.9, random actions of at most 20 steps"
    )
