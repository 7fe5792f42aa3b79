"""``--resume-or-start``: the same command twice goes on, or begins where nothing can go on."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.cli.experiment_flags import Wanted
from colobus.core.checkpoint import read_about
from colobus.core.files import CannotRead
from colobus.experiment.autoscale import for_cores
from colobus.experiment.presets import preset
from colobus.runs.config import read_config
from colobus.training.saving import newest_of
from colobus.training.start import last_like, may_go_on
from helpers import gym_toys
from helpers.launching import CATCH, complete, printed, refused
from helpers.launching import colobus as command

QUIET: dict[str, Any] = {"tensorboard": False, "log": lambda _line: None}
AGAIN = QUIET | {"resume_or_start": True}


def no_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def half_a_checkpoint(run: Path) -> None:
    for path in (run / "checkpoints").glob("*.json"):
        path.unlink()


def damaged(run: Path) -> None:
    for path in (run / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"nothing")


def before_the_settings(run: Path) -> None:
    no_checkpoints(run)
    (run / "config.json").unlink()
    (run / "tensorboard").mkdir(exist_ok=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    colobus.train("catch", folder, steps=2_000, lr=0.001, **QUIET)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl"])
def test_what_a_run_writes_must_be_a_file_before_it_goes_on(run: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).mkdir()
    code, _, err = command("train", "--resume", run, "--steps", 4_000)
    assert code == 2
    assert err == f"colobus: {run / name}: is no regular file; move it away, then resume\n"


def words(run: Path, *more: object) -> list[object]:
    return [*CATCH, "--lr", "0.001", "--resume-or-start", "--out", run, *more]


@pytest.mark.parametrize(
    "damage", [no_checkpoints, half_a_checkpoint, damaged, before_the_settings]
)
def test_a_folder_with_nothing_to_go_on_from_is_set_aside(run: Path, damage: Any) -> None:
    (run / "lock").touch()
    damage(run)
    left = sorted(path.name for path in run.iterdir())
    said = printed(*words(run, "--steps", 1_000))
    assert f"{run} has no checkpoint to go on from: it is kept as {run.parent / '.run-1'}" in said
    assert sorted(path.name for path in (run.parent / ".run-1").iterdir()) == left
    assert complete(run)[-1]["epoch"] == 0
    assert 1_000 <= complete(run)[-1]["steps"] < 2_000


@pytest.mark.slow
def test_the_same_command_begins_and_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()  # empty, as a job may make it
    assert "going on with" not in printed(*words(run, "--steps", 1_000))
    assert "going on with" in printed(*words(run, "--steps", 2_000))
    assert complete(run)[-1]["epoch"] == 1
    assert complete(run)[-1]["steps"] >= 2_000
    assert "is past its stop rule: 2" in printed(*words(run, "--steps", 2_000))
    assert not list(tmp_path.glob(".run*"))


def test_the_last_run_is_found_behind_a_gap(here: Path, run: Path) -> None:
    like = read_config(run).experiment
    assert last_like("catch", like) == Path("runs/catch-1")
    Path("runs").mkdir()
    Path("runs/catch-2.sh").touch()
    shutil.copytree(run, "runs/catch-3")
    assert last_like("catch", like) == Path("runs/catch-3")
    assert last_like("catch", replace(like, seed=9)) == Path("runs/catch-1")


def test_a_run_with_a_name_goes_on_where_it_was_not_begun(here: Path) -> None:
    words = (*CATCH, "--lr", 0.001, "--resume-or-start")
    printed(*words, "--name", "one", "--steps", 1_000)
    colobus.train("catch", name="one", steps=2_000, lr=0.001, **AGAIN)
    colobus.train("catch", name="two", steps=1_000, lr=0.001, **AGAIN)
    printed(*words, "--name", "two", "--steps", 2_000)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["one-1", "two-1"]
    assert [complete(run)[-1]["epoch"] for run in Path("runs").iterdir()] == [1, 1]


def test_what_does_not_fit_the_run_is_one_line(run: Path) -> None:
    said = "--lr with --resume: a run's settings are fixed"
    assert said in refused(*words(run, "--lr", "0.002"))
    assert "'x' is no run" in refused(*words(run, "--resume", "x"))
    err = refused("train", "dba3c-catch", *words(run)[2:])
    assert f"--out {run}: is a run of catch, not of dba3c-catch" in err


def test_a_run_does_not_go_on_in_another_environment(run: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"make_env": gym_toys.walk, "steps": 3_000, **QUIET}
    said = rf"^make_env: is \S+:walk, and {run} is a run of catch; leave it out, or begin another"
    with pytest.raises(colobus.ColobusError, match=said):
        colobus.train(resume=run, **more)
    with pytest.raises(colobus.ColobusError, match=said):
        colobus.train(out=run, resume_or_start=True, **more)

    def walk() -> Any:
        return gym_toys.walk()

    def stroll() -> Any:
        return gym_toys.walk()

    for made in (walk, stroll):  # as in a script
        made.__module__, made.__qualname__ = "__main__", made.__name__
    again: dict[str, Any] = {"out": tmp_path / "walk", **AGAIN}
    colobus.train(make_env=walk, steps=1_000, **again)
    with pytest.raises(colobus.ColobusError, match=r"run of __main__:walk, not of __main__:stroll"):
        colobus.train(make_env=stroll, steps=1_000, **again)


@pytest.mark.slow
def test_a_run_that_began_with_other_weights_is_another_run(here: Path, run: Path) -> None:
    err = refused(*words(run, "--from", run))
    assert f"{run}: began with new weights, not with those of {run}; name another folder" in err
    with pytest.raises(colobus.ColobusError, match="began with new weights"):
        colobus.train("catch", run, lr=0.001, from_run=run, **AGAIN)
    new = [*CATCH, "--lr", "0.001", "--resume-or-start", "--steps"]
    for number, more in ((1, []), (2, ["--from", run]), (1, []), (2, ["--from", run])):
        steps = 1_000 + 1_000 * (number == 1)
        assert f"runs/catch-{number}" in printed(*new, steps, *more)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["catch-1", "catch-2"]


@dataclass(frozen=True)
class Mixed(colobus.APPO):
    """Has the settings of APPO."""


def test_another_algorithm_is_another_run_with_the_same_settings_too(here: Path) -> None:
    again: dict[str, Any] = {"steps": 1_000, **AGAIN}
    first = colobus.train("catch", algorithm=Mixed, **again).folder
    second = colobus.train("catch", **again).folder
    assert [first.name, second.name] == ["catch-1", "catch-2"]
    with pytest.raises(colobus.ColobusError, match=r"^--algorithm with resume: "):
        colobus.train(resume=second, algorithm=Mixed, **QUIET)
    words = (*CATCH, "--algorithm", "pqn", "--resume-or-start", "--out", second)
    assert "--algorithm pqn with --resume: a run's settings are fixed" in refused(*words)


def test_a_strangers_folder_and_one_that_cannot_be_resumed(run: Path) -> None:
    no_checkpoints(run)
    err = refused("train", "--resume", run)
    assert "ended before its first checkpoint, so it cannot be resumed: begin it anew" in err
    assert f"--resume-or-start --out {run}" in err
    err = refused("train", "catch", "--out", run)
    assert "or begin that run anew with --resume-or-start" in err
    (run / "model.safetensors").touch()
    said = refused("train", "--resume", run)
    assert f"{run} is an exported agent: begin a run with its weights by --from" in said
    (run / "model.safetensors").unlink()
    (run / "thesis.tex").touch()
    for config in ("", '{"model_type": "of another program"}'):
        (run / "config.json").write_text(config) if config else (run / "config.json").unlink()
        for again in (words(run), (*CATCH, "--out", run)):
            said = f"colobus: --out {run}: the folder is not empty; name a new one\n"
            assert refused(*again) == said
        assert (run / "thesis.tex").exists()


def test_the_working_folder_cannot_be_set_aside(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_checkpoints(run)
    monkeypatch.chdir(run)
    said = refused(*words(Path()))
    assert "--out .: cannot be set aside from inside; name another folder" in said


def test_the_same_call_with_cores_goes_on_from_settings_too(tmp_path: Path) -> None:
    """--cores has chosen actors that the given settings do not have."""
    experiment = colobus.preset("dba3c-catch", steps=2_000)
    costs = colobus.Hosts(costs="learn=1ms,act=1ms,emulate=1ms")
    more: dict[str, Any] = {"cores": 4, "cluster": costs, **AGAIN}
    first = colobus.train(experiment, tmp_path / "run", **more)
    again = colobus.train(experiment, tmp_path / "run", **more)
    assert (again.folder, again.steps) == (first.folder, first.steps)


def test_from_python_a_run_goes_on_until_it_is_over(here: Path) -> None:
    for steps in (1_000, 2_000):
        result = colobus.train("catch", steps=steps, lr=0.001, **AGAIN)
        assert str(result.folder) == "runs/catch-1"
        assert result.steps >= steps
    run, said = Path("runs/catch-1"), list[str]()
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    more: dict[str, Any] = AGAIN | {"log": said.append}
    over = colobus.train("catch", run, steps=2_000, lr=0.001, **more)
    assert said[-1].startswith(f"{run} is past its stop rule: ")
    last = complete(run)[-1]
    assert last["epoch"] == 1
    assert (over.steps, over.status.version) == (last["steps"], last["version"])
    assert over.status.games > 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    with pytest.raises(colobus.ColobusError, match=r"^--lr with resume: .*from_run"):
        colobus.train("catch", "runs/catch-1", lr=0.002, **AGAIN)
    other = colobus.train("catch", steps=1_000, lr=0.002, **AGAIN)
    assert str(other.folder) == "runs/catch-2"
    again = colobus.train("catch", steps=3_000, lr=0.001, **AGAIN)
    assert str(again.folder) == "runs/catch-1"
    with pytest.raises(colobus.ColobusError, match="is a run of catch, not of dba3c-catch"):
        colobus.train("dba3c-catch", "runs/catch-1", **AGAIN)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["catch", "dba3c-catch", "gorila-catch"])
def test_the_first_checkpoint_is_that_of_the_first_versions(tmp_path: Path, name: str) -> None:
    seen: list[int] = []

    def end(path: Path) -> None:
        seen.append(read_about(path).version)
        raise colobus.StopTraining

    often: dict[str, Any] = {"checkpoint_seconds": 1e6, "steps": 10**9}
    colobus.train(name, tmp_path / "run", on_checkpoint=end, **often, **QUIET)
    assert seen[0] == 1 or seen[0] % 50 == 0  # servers are asked twice a second


def test_a_resumed_run_asks_for_its_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, seen = preset("dba3c-catch")[0], list[float]()
    colobus.train(for_cores(base, base, 4), tmp_path, "dba3c-catch", steps=1_000, **QUIET)

    def learn(wanted: Wanted, *_: object) -> None:
        seen.append(wanted.flags.cluster.cpus)
        raise colobus.ColobusError("enough")

    monkeypatch.setattr("colobus.cli.train._learn", learn)
    words = ("--cores", 4, "--steps", 10**6, "--resume-or-start", "--out", tmp_path)
    refused("train", "dba3c-catch", "--on", "ray", "--address", "10.0.0.1:6379", *words)
    assert seen == [4.0]


def test_a_checkpoint_that_the_disk_does_not_give_now_is_no_reason_to_begin_anew(run: Path) -> None:
    for path in (run / "checkpoints").glob("*.json"):
        path.unlink()
        path.mkdir()
    code, _, err = command(*words(run))
    assert (code, "no complete checkpoint in " in err) == (1, True)
    assert sorted(path.name for path in run.parent.iterdir()) == ["run"]


def test_a_folder_that_is_not_shown_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A glob finds nothing where one may not look; root may look everywhere."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.json").touch()
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path).name == "checkpoints":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for look in (lambda run: may_go_on(run, print), lambda run: newest_of(run, None)):
        with pytest.raises(CannotRead, match=r"checkpoints cannot be read: Permission denied$"):
            look(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
