"""What a run takes on machines of many kinds, and what is said about idle cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import colobus
from colobus.cli.experiment_flags import resolve
from colobus.cli.main import run
from colobus.cli.show import Show
from colobus.cli.train import Train, launched
from colobus.core.errors import ColobusError
from colobus.experiment.autoscale import cores_of, for_cores, idle, threads_of
from colobus.experiment.check import check
from colobus.experiment.memory import batch_of
from colobus.experiment.presets import PRESETS, preset
from colobus.nets.config import NetworkSettings
from colobus.roles.actor import Actor
from colobus.roles.learner import Learner
from conftest import distributed_catch
from helpers.outcomes import inline, threads

TABLE = [  # cores, GPU, torso or what learns: actors, games, emulator threads, own batch
    (3, False, "small", (2, 8, 1, False)),
    (4, False, "small", (3, 8, 1, True)),
    (8, False, "small", (4, 8, 1, True)),
    (64, False, "small", (4, 8, 1, True)),
    (4, False, "dqn2013", (3, 8, 1, True)),
    (16, False, "dqn2013", (3, 8, 1, True)),
    (16, False, "nature", (2, 8, 1, False)),
    (16, False, "resnet", (2, 8, 1, False)),
    (16, False, "own", (2, 8, 1, False)),
    (16, False, "dqn", (2, 8, 1, False)),
    (4, True, "small", (2, 16, 4, True)),
    (16, True, "small", (2, 16, 16, True)),
    (16, True, "nature", (2, 16, 16, True)),
    (16, True, "dqn", (2, 16, 16, False)),
    (128, True, "dqn2013", (2, 16, 16, True)),
]


@pytest.mark.parametrize(("cores", "gpu", "torso", "want"), TABLE)
def test_the_table(cores: int, gpu: bool, torso: str, want: tuple[int, int, int, bool]) -> None:
    network: Any = {"own_torso": "my_module:torso"} if torso == "own" else {"torso": torso}
    pong = replace(PRESETS["pong"], network=NetworkSettings(**network))
    base = PRESETS["dqn-pong"] if torso == "dqn" else pong
    shape = for_cores(base, base, cores, gpu).shape
    assert (shape.actors, shape.games, shape.emulators, bool(shape.batch)) == want


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 6, 16, 96, 384])
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(
    "name", ["pong", "breakout", "ppo-breakout", "catch", "impala-pong", "pqn-pong", "apex-pong"]
)
def test_what_is_chosen_can_be_trained_with_its_batch(name: str, gpu: bool, cores: int) -> None:
    base = preset(name)[0]
    found = for_cores(base, base, cores, gpu)
    check(found)
    assert batch_of(found) == batch_of(base)
    if not gpu:
        assert threads_of(found) <= max(cores, threads_of(base))
        assert found.shape.actors >= base.shape.actors
        assert (found == base) == (found.shape.actors == base.shape.actors)
    assert found.shape.emulators == 1 or name != "catch"  # it has no threads of its own
    assert replace(found, shape=base.shape) == base


@pytest.mark.parametrize(
    ("name", "cores", "want"),
    [  # by hand: a learner's thread follows so many actors as in the table, and gets one core
        ("dba3c-breakout-paper", 2, (1, 1, 32)),
        ("dba3c-breakout-paper", 12, (8, 4, 32)),  # 2 actors for each of 4 threads
        ("dba3c-catch", 12, (10, 2, 72)),  # mlp: 4 actors, 12 // 5 threads; 8 games x 9 steps
    ],
)
def test_each_worker_uses_its_cores(name: str, cores: int, want: tuple[int, int, int]) -> None:
    base = preset(name)[0]
    found = for_cores(base, base, cores)
    check(found)
    shape = found.shape
    assert (shape.actors, shape.learner_threads, shape.batch or shape.datapoints) == want
    assert shape.emulators == 1
    assert threads_of(found) == cores * shape.workers


def test_a_batch_has_the_steps_of_all_agents() -> None:
    pair = PRESETS["catch-pair"]
    shape = for_cores(pair, pair, 4).shape
    assert shape.actors > pair.shape.actors
    assert shape.batch == 2 * pair.shape.datapoints == 1024


def test_a_learner_computes_with_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = distributed_catch(1, workers=1, actors=2, learner_threads=3)
    seen: dict[str, set[int]] = {"Actor": set(), "Learner": set()}
    for kind in (Actor, Learner):

        def step(role: Any, own: Any = kind.step) -> None:
            seen[type(role).__name__].add(torch.get_num_threads())
            own(role)

        monkeypatch.setattr(kind, "step", step)
    threads(experiment)
    assert seen == {"Actor": {1}, "Learner": {3}}
    inline(experiment)
    assert seen == {"Actor": {1}, "Learner": {3}}


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("pong", {"actors": 3}, r"^--cores 8 with --actors 3: both choose it; leave one"),
        ("pong", {"batch": 4096}, r"^--cores 8 with --batch 4096: both choose it"),
        (
            "gorila-pong",
            {"workers": 0, "learners": 2},
            r"^--cores 8 in a run with learners: it suits runs with workers or ",
        ),
        ("dba3c-pong", {"learner_threads": 2}, r"^--cores 8 with --learner-threads 2: both "),
        ("dqn-pong", {"actors": 1}, r"^--cores 8 with --actors 1: both choose it"),
        ("pong", {"deterministic": True}, r"^--cores 8 with --deterministic: "),
    ],
)
def test_what_does_not_fit_is_refused(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ColobusError, match=said):
        for_cores(colobus.preset(name, **changes), preset(name)[0], 8)


def test_a_deterministic_run_whose_batches_stay_is_taken() -> None:
    base = colobus.preset("pong", deterministic=True)
    assert for_cores(base, base, 2) == base
    base = colobus.preset("dqn-pong", deterministic=True)
    assert for_cores(base, base, 16) == base
    found = for_cores(base, base, 16, gpu=True)
    check(found)
    assert found.shape.games == 16


def test_cores_are_a_number_that_there_is_or_all() -> None:
    for text in ("0", "-1", "2.5", "many", "", "٣", "9999999"):
        with pytest.raises(ColobusError, match=r": must be a whole number from 1 on, or all$"):
            cores_of(text, 4)
    assert cores_of("all", 4) == cores_of("4", 4) == 4
    said = r"^--cores 16: this process may use 4; use --cores 4 or all$"
    with pytest.raises(ColobusError, match=said):
        cores_of("16", 4)
    said = r"^--cores 3 for each of 4 workers: this process may use 8; use --cores 2 or all$"
    with pytest.raises(ColobusError, match=said):
        cores_of("3", 8, workers=4)
    assert cores_of("all", 9, workers=4) == cores_of("2", 8, workers=4) == 2
    assert cores_of("12", 2, workers=64, joined=True) == 12  # of other hosts
    with pytest.raises(ColobusError, match=r"^--cores all with workers on a cluster: give the "):
        cores_of("all", 8, workers=4, joined=True)
    with pytest.raises(ColobusError, match=r"^--cores 3: this process may use 2"):
        cores_of("3", 2, joined=True)


@pytest.mark.slow
def test_the_command_line_and_python_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cli.experiment_flags", "training.entry"):
        monkeypatch.setattr(f"colobus.{module}.usable_cores", lambda: 8)
    gpu = ["pong", "--cores", "all", "--device", "cuda"]
    wanted = resolve(Show, "show", gpu[:3])
    assert (wanted.experiment.shape.actors, wanted.experiment.shape.batch) == (4, 2048)
    assert wanted.base == PRESETS["pong"]
    assert resolve(Train, "train", gpu).experiment.shape.actors == 2
    for words in (["--act-device", "cpu"], ["--on", "ray"]):  # its actors are on CPUs
        wide = resolve(Train, "train", [*gpu, *words]).experiment
        assert wide == resolve(Train, "train", gpu[:3]).experiment
    assert run(["show", "pong", "--cores", "9"]) == 2
    assert run(["train", "dba3c-pong", "--cores", "9"]) == 2
    words = ["--cores", "12", "--on", "ray", "--address", "10.0.0.1:6379", "--per-process", "2"]
    workers = resolve(Train, "train", ["dba3c-breakout-paper", *words])
    assert workers.flags.cluster.cpus == 24.0  # of two workers in one process
    assert launched(workers.flags)[-2:] == ["--cpus", "24"]
    given = resolve(Train, "train", ["dba3c-breakout-paper", *words, "--cpus", "4"])
    assert given.flags.cluster.cpus == 4.0
    shown = resolve(Show, "show", ["dba3c-breakout-paper", *words[:2]])
    assert (shown.experiment.shape.actors, shown.flags.cluster.cpus) == (8, 12.0)  # for --nodes
    assert run(["train", "pong", "--cores", "8", "--deterministic"]) == 2
    with pytest.raises(ColobusError, match=r"^--cores 9: this process may use 8"):
        colobus.train("pong", cores=9)


def test_a_machine_that_would_lie_idle_is_named() -> None:
    pong = PRESETS["pong"]
    assert [idle(pong, cores) for cores in (1, 2, 3, 6)] == [""] * 4
    line = "this process may use 16 cores, and the run uses 3 of them at most; --cores all takes "
    assert idle(pong, 16).startswith(line)
    assert "--cores all" in idle(PRESETS["dba3c-pong"], 64)
    assert "more actors or workers" in idle(PRESETS["dqn-pong"], 16)
    assert "--cores all" in idle(PRESETS["dqn-pong"], 16, gpu=True)
    assert idle(replace(pong, shape=replace(pong.shape, env_processes=8)), 16) == ""
    own = replace(pong, network=NetworkSettings(own_torso="my_module:torso"))
    assert idle(own, 16)
