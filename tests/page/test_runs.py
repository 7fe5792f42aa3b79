"""Which runs there are, what they are called and what differs between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gelada.core.errors import GeladaError
from gelada.runs.listing import (
    Runs,
    check_places,
    differences,
    find_runs,
    group_names,
    grouped,
    short_names,
)
from gelada.runs.read import RunFolder
from helpers.made_runs import make_run


def found(*places: Path) -> list[RunFolder]:
    runs = Runs(places)
    runs.look()
    for run in runs.all:
        run.refresh()
    return runs.all


def test_runs_are_found_below_folders_in_the_order_people_count(tmp_path: Path) -> None:
    for name in ("pong-10", "pong-2", "suite/runs/catch-1", ".hidden/x", "a/b/c/d/deep"):
        make_run(tmp_path / name)
    make_run(tmp_path / "pong-2" / "inner")
    (tmp_path / "link").symlink_to(tmp_path / "suite")
    names = [str(path.relative_to(tmp_path)) for path in find_runs(tmp_path)]
    assert names == ["pong-2", "pong-10", "suite/runs/catch-1"]
    assert find_runs(tmp_path / "pong-2") == [tmp_path / "pong-2"]


def test_new_runs_are_found_and_those_that_are_gone_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    runs = Runs([tmp_path, tmp_path])
    assert runs.look()
    first = runs.all
    assert not runs.look()
    make_run(tmp_path / "b")
    assert runs.look()
    assert [run.name for run in runs.all] == ["a", "b"]
    assert runs.all[0] is first[0]
    (tmp_path / "a" / "config.json").unlink()
    assert runs.look()
    assert [run.name for run in runs.all] == ["b"]


def test_names_are_as_long_as_they_must_be() -> None:
    assert short_names([Path("/r/one/pong-1"), Path("/r/two/pong-1"), Path("/r/two/x")]) == [
        "one/pong-1",
        "two/pong-1",
        "two/x",
    ]
    assert short_names([Path("/r/pong-1"), Path("/r/pong-2")]) == ["pong-1", "pong-2"]
    assert short_names([]) == []


def test_seeds_of_the_same_settings_are_one_group(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / f"a-{seed}", seed=seed)
        make_run(tmp_path / f"b-{seed}", seed=seed, lr=0.1)
    make_run(tmp_path / "c", game="breakout")
    groups = grouped(found(tmp_path))
    assert [[run.name for run in group] for group in groups] == [
        ["a-1", "a-2"],
        ["b-1", "b-2"],
        ["c"],
    ]
    assert group_names(groups) == [
        "pong · appo · lr 0.002",
        "pong · appo · lr 0.1",
        "breakout · appo",
    ]


def test_differences_have_a_value_for_each_run(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", lr=0.1, seed=2)
    assert differences(found(tmp_path)) == {
        "algorithm.lr": [0.002, 0.1],
        "seed": [1, 2],
        "stop.steps": [1000, 2000],
    }
    assert differences([]) == {}


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "pong-1")
    with pytest.raises(GeladaError, match=r"'.*/pong-2' is no folder.*nearest known: pong-1"):
        check_places([tmp_path / "pong-2"])
    check_places([tmp_path])
