"""What a run's folder says: evaluations, films, events and stages, whatever else lies there."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from colobus.core.errors import ColobusError
from colobus.page.view import group_id, run_id
from colobus.runs.folder import slug
from colobus.runs.listing import (
    Runs,
    check_places,
    differences,
    find_runs,
    group_names,
    grouped,
    run_names,
)
from colobus.runs.read import RunFilm, RunFolder, milestones
from helpers.launching import colobus, printed, told
from helpers.made_runs import Row, change_config, evaluate, make_run, rising, row

VERSION_0_1 = Path(__file__).parent.parent / "data" / "version-0.1"


def read(path: Path) -> RunFolder:
    run = RunFolder(path, path.name)
    run.refresh()
    return run


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    run = read(make_run(tmp_path / "a", rising(5), game="breakout", seed=7))
    assert (run.game, run.algorithm, run.seed, run.frame_skip) == ("breakout", "appo", 7, 4)
    assert run.settings["algorithm.lr"] == 0.002
    assert run.about["cores"] == 2
    assert "about.cores" not in run.settings
    assert not run.learning  # it has ended
    (run.path / "lock").touch()
    assert run.learning


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("from", "beginning with the weights of a after 9 steps"),
        ("time", "simulated, costs learn=5s, link 10Gb"),
    ],
)
def test_other_weights_or_times_are_another_group(tmp_path: Path, name: str, said: str) -> None:
    a, b, c = (make_run(tmp_path / name, rising(5), seed=ord(name)) for name in "abc")
    change_config(b, about={name: said})
    groups = grouped([read(a), read(b), read(c)])
    assert [[run.path for run in group] for group in groups] == [[a, c], [b]]


@pytest.mark.parametrize(
    ("share", "ends"), [(0.0, [""]), (0.8, [" · minutes 10", " · minutes 60"])]
)
def test_runs_whose_schedules_ended_at_another_time_are_no_seeds_of_one_another(
    tmp_path: Path, share: float, ends: list[str]
) -> None:
    """With --anneal-share the run's minutes decide what is learned, else only how long."""
    for name, minutes in (("a", 10), ("b", 60)):
        run = make_run(tmp_path / name, rising(5))
        change_config(run, algorithm={"anneal_share": share}, stop={"minutes": minutes})
    groups = grouped([read(tmp_path / name) for name in "ab"])
    assert group_names(groups) == [f"pong · appo{end}" for end in ends]


@pytest.mark.parametrize("name", ["catch", "dba3c-catch", "gorila-catch", "pong"])
def test_runs_of_version_0_1_are_read(name: str) -> None:
    run = read(VERSION_0_1 / name)
    assert run.game == name.rpartition("-")[2]
    assert run.algorithm
    assert run.seed is not None


RARE = [row(1000, 30.0, 1.0), row(2000, 60.0, 1.0)]


@pytest.mark.parametrize(
    ("rows", "age", "learning"), [(rising(5), 3600, False), (RARE, 40, True), (RARE, 80, False)]
)
def test_a_run_is_learning_until_its_next_line_is_late(
    tmp_path: Path, rows: list[Row], age: float, learning: bool
) -> None:
    path = make_run(tmp_path / "a", rows)
    (path / "lock").touch()
    os.utime(path / "metrics.jsonl", (time.time() - age,) * 2)
    run = read(path)
    assert run.learning == learning
    assert run.age is not None
    assert age - 10 < run.age < age + 100
    change_config(path, about={"time": "simulated, link 10Gb"})
    assert not read(path).learning  # the seconds between its lines are not those of a clock


def test_evaluations_are_read_when_they_come_and_interrupted_ones_left_out(tmp_path: Path) -> None:
    """Of two after the same steps the longer one is the newest."""
    path = make_run(tmp_path / "a", rising(5))
    run = read(path)
    assert run.evaluations == []
    evaluate(path, 5000, [1.0, 3.0])
    evaluate(path, 900, [2.0], protocol="noop")
    evaluate(path, 7000, [9.0], interrupted=True)
    assert run.refresh()
    assert not run.refresh()
    assert [(e.steps, e.protocol, e.mean, e.error) for e in run.evaluations] == [
        (900, "noop", 2.0, None),
        (5000, "sticky", 2.0, 1.0),
    ]
    evaluate(path, 5000, [1.0] * 50).rename(path / "eval" / "5000-sticky-50-sampled-seed1.json")
    evaluate(path, 5000, [9.0]).rename(path / "eval" / "5000-sticky-1-sampled-seed1.json")
    newest = [(e.games, e.mean) for e in read(path).evaluations if e.steps == 5000]
    assert newest == [(1, 9.0), (50, 1.0)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"mean": 1}', '{"mean": NaN}', "[" * 10**5, "null"]
)
def test_strange_files_are_left_out(tmp_path: Path, text: str) -> None:
    path = make_run(tmp_path / "a", rising(5))
    (path / "eval").mkdir()
    (path / "eval" / "5-x.json").write_text(text)
    (path / "events.jsonl").write_text(text)
    assert read(path).evaluations == []
    assert read(path).events == []
    (path / "config.json").write_text(text)
    run = read(path)
    assert (run.game, run.seed, run.frame_skip, run.algorithm) == ("", None, 4, "")


def test_events_and_resumes_are_told(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", [*rising(5), row(2500, 20.0, 0.0)])
    lost = {"seconds": 3.5, "event": "lost", "where": {"host": "b", "process": 7}}
    (path / "events.jsonl").write_text(json.dumps(lost) + "\n[]\n" + '{"event": 3}\n')
    assert read(path).events == [
        {"seconds": 3.5, "event": "lost", "where.host": "b", "where.process": 7},
        {"event": "resumed", "steps": 2500},
    ]


def test_films_are_plain_files_with_steps_in_their_names(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", rising(9))
    videos = path / "videos"
    videos.mkdir()
    for name in ("100.mp4", "4000.gif", "notes.txt", "x.mp4", "-5.mp4", "9" * 40 + ".mp4"):
        (videos / name).write_bytes(b"film")
    for name in ("77.mp4", "milestones.mp4"):
        (videos / name).symlink_to(path / "config.json")
    (path / "film.mp4").write_bytes(b"film")
    run = read(path)
    assert run.together is None
    assert [(film.steps, film.path.name) for film in run.films] == [
        (100, "100.mp4"),
        (4000, "4000.gif"),
        (9000, "film.mp4"),
    ]
    evaluate(path, 7000, [1.0, 3.0], protocol="training")  # of the best checkpoint
    os.utime(path / "film.mp4", (2e9, 2e9))
    os.utime(evaluate(path, 8000, [1.0, 3.0], protocol="training"), (3e9, 3e9))  # after the film
    (videos / "milestones.gif").write_bytes(b"film")
    run = read(path)
    assert run.films[-1].steps == 7000
    assert run.together is not None
    assert run.together.path == videos / "milestones.gif"


def test_milestones_are_before_half_way_and_after() -> None:
    films = [RunFilm(steps, Path(f"{steps}.mp4"), 0) for steps in (1, 10, 40, 55, 90, 100)]
    assert [film.steps for film in milestones(films)] == [1, 55, 100]
    assert milestones(films[:2]) == films[:2]


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


def test_new_runs_are_found_once_and_those_that_are_gone_left_out(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    run = make_run(place / "a")
    (tmp_path / "latest").symlink_to(run)
    runs = Runs([place, place / ".." / "runs", tmp_path / "latest"])
    assert runs.look()
    first = runs.all
    assert [one.path for one in first] == [run]
    assert not runs.look()
    make_run(place / "b")
    assert runs.look()
    assert [one.name for one in runs.all] == ["a", "b"]
    assert runs.all[0] is first[0]
    (run / "config.json").unlink()
    assert runs.look()
    assert [one.name for one in runs.all] == ["b"]


def test_runs_in_environments_without_a_name_are_named_by_what_differs(tmp_path: Path) -> None:
    for i, (lr, seed) in enumerate(((0.1, 1), (0.1, 2), (0.2, 1), (0.3, 1), (0.3, 1))):
        game = f"__main__:<lambda>#{i + 13}"
        make_run(tmp_path / f"{slug(game)}-1", game=game, lr=lr, seed=seed)
    make_run(tmp_path / "mine", game="__main__:<lambda>", lr=0.2)
    make_run(tmp_path / "pong-1", game="pong")
    runs = found(tmp_path)
    names = ["lr 0.1 · seed 1", "lr 0.1 · seed 2", "lr 0.2"]
    names += [f"lr 0.3 · __main__-lambda-{number}-1" for number in (16, 17)]
    assert run_names(runs) == [*names, "mine", "pong-1"]
    names[2] = "lr 0.2 · __main__-lambda-15-1"
    groups = [f"own environment · appo · {name}" for name in (*names, "lr 0.2 · mine")]
    assert group_names(grouped(runs)) == [*groups, "pong · appo"]


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
    with pytest.raises(ColobusError, match=r"'.*/pong-2' is no folder.*nearest known: pong-1"):
        check_places([tmp_path / "pong-2"])
    check_places([tmp_path])


def tagged_run(folder: Path, tags: str, score: float) -> Path:
    """Make a run with tags that has come to 2,000 steps."""
    made = make_run(folder, rising(2, slope=score / 2), seed=7)
    change_config(made, tracker={"tags": tags})
    return made


def test_runs_are_listed_by_their_tags(tmp_path: Path) -> None:
    tagged_run(tmp_path / "a", "fast, lr", 3.0)
    evaluate(tagged_run(tmp_path / "b", "lr,slow,", 5.0), 2000, [4.0, 5.0])
    make_run(tmp_path / "c")

    assert [one["run"] for one in told("runs", tmp_path)["runs"]] == ["a", "b", "c"]
    assert [one["run"] for one in told("runs", tmp_path, "--tags", "lr")["runs"]] == ["a", "b"]
    (only,) = told("runs", tmp_path, "--tags", "slow,lr")["runs"]
    want = {"run": "b", "tags": ["lr", "slow"], "game": "pong", "algorithm": "appo", "seed": 7}
    want |= {"steps": 2000, "seconds": 4.0, "score": 5.0, "evaluated": 4.5}
    assert {name: only[name] for name in want} == want
    lines = printed("runs", tmp_path).splitlines()
    assert " ".join(lines[2].split()[:9]) == "b lr, slow pong appo 7 2,000 0:04 5.00"
    make_run(tmp_path / ("q" * 60))
    assert printed("runs", tmp_path).count("q") == 60  # folded, not cut, where a name is long
    said = printed("runs", tmp_path, "--tags", "none")
    assert said == f"no run with all of the tags 'none' in {tmp_path}\n"
    assert colobus("runs", tmp_path / "no")[0] == 2


def test_a_whole_number_may_stand_for_a_float(tmp_path: Path) -> None:
    """From Python gradient_clip=1 is written as 1, from the command line as 1.0."""
    runs = [read(make_run(tmp_path / name, lr=lr)) for name, lr in (("a", 1), ("b", 1.0))]
    assert len(grouped(runs)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="names of folders are text there")
def test_names_that_are_no_text_have_ids_of_their_own(tmp_path: Path) -> None:
    names = (b"gr\xf6", b"gr\xfc", b"gr?")
    runs = [RunFolder(tmp_path / os.fsdecode(name), "x") for name in names]
    assert len({run_id(run) for run in runs}) == len({group_id(run) for run in runs}) == 3
