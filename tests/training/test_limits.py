"""What a run needs is compared with what there is, before it is started."""

from __future__ import annotations

import resource
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from colobus.cli.show import imagined_start
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings
from colobus.experiment import memory as limits
from colobus.experiment.memory import check_cluster_memory, check_limits, imagined_network, memory
from colobus.experiment.presets import PRESETS
from colobus.experiment.presets.environments import for_environment
from colobus.experiment.settings import Experiment
from colobus.ops.flat import Layout
from colobus.runtime.devices import Devices
from colobus.runtime.groups import Cluster, group_processes
from colobus.training.on_ray import OnRay
from colobus.training.start import make_network
from colobus.training.topology import make_graph
from conftest import catch, dqn, reshaped


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What this machine has, for a test to set; None: unknown."""
    has = SimpleNamespace(memory=None, threads=None, files=resource.RLIM_INFINITY)
    monkeypatch.setattr(limits, "available_memory", lambda: has.memory)
    monkeypatch.setattr(limits, "available_threads", lambda: has.threads)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (has.files, has.files))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return has


@pytest.mark.parametrize("name", ["pong", "catch", "dba3c-catch", "apex-pong", "pqn-pong"])
def test_the_imagined_network_is_as_large_as_the_real_one(name: str) -> None:
    experiment = PRESETS[name]
    real = make_network(experiment, imagined_start(experiment))
    imagined = imagined_network(experiment)
    assert all(parameter.is_meta for parameter in imagined.parameters())
    ours, theirs = memory(experiment, imagined), memory(experiment, real)
    assert ours.keys() == theirs.keys() <= limits.FLAGS.keys()
    for part, needed in theirs.items():
        assert ours[part] == pytest.approx(needed, rel=0.1, abs=2**20), part


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_an_estimate(name: str, machine: Any) -> None:
    machine.memory, machine.threads = 2**50, 10**6
    check_limits(PRESETS[name])


def test_what_does_not_fit_names_the_largest_part_and_its_flags(machine: Any) -> None:
    base = PRESETS["pong"]
    machine.memory = 2**31
    check_limits(base)
    wide = reshaped(base, random_steps=10**7)
    with pytest.raises(ColobusError, match=r"most of it for input statistics, .*--random-steps"):
        check_limits(wide)
    check_limits(wide, Cluster("10.0.0.1:6379"))  # in the processes of a cluster
    slots = replace(base.reuse, replay_proportion=0.5, replay_slots=10**5)
    with pytest.raises(ColobusError, match=r"most of it for experience, .*--replay-slots"):
        check_limits(replace(base, reuse=slots))
    machine.memory = None
    check_limits(wide)


def test_actions_take_memory() -> None:
    few, many = (
        memory(experiment, imagined_network(experiment))
        for name in ("shifted", "versatile")
        for experiment in [for_environment(GameSettings(game=f"helpers.gym_toys:{name}"))]
    )
    more = {part: needed - few[part] for part, needed in many.items() if needed > few[part]}
    assert more == {
        # values and gradients, two of Adam, two versions and those of two actors
        "parameters": pytest.approx(8 * 4 * 65 * (60_000 - 18), rel=1e-3),
        "action scores": 4 * (4 * 2 * 8 * 64 + 2 * 8 * 65) * (60_000 - 3),
        "minibatch with gradients": 2 * 256 * 12 * (60_000 - 3),
    }


@pytest.mark.parametrize(("name", "copies"), [("catch", 1), ("dba3c-catch", 2)])
def test_a_mean_of_the_parameters_takes_memory(name: str, copies: int) -> None:
    """The server has one; a server with memory of its own puts another aside for checkpoints."""
    base = PRESETS[name]
    net, optimizer = imagined_network(base), replace(base.optimizer, average=0.9)
    one, more = (memory(each, net) for each in (base, replace(base, optimizer=optimizer)))
    assert more["parameters"] - one["parameters"] == copies * 4 * Layout(net).size


def test_more_servers_than_parts_of_the_network_are_refused() -> None:
    experiment = reshaped(catch(1000), servers=32)
    few = replace(experiment, network=replace(experiment.network, width=1, stack=1))
    most = Layout(imagined_network(few)).size // 64
    for cluster in (None, Cluster(), Cluster("10.0.0.1:6379")):
        with pytest.raises(ColobusError, match=rf"^--servers 32: .* enough for {most}; "):
            check_limits(few, cluster)
    check_limits(reshaped(few, servers=most))


def test_threads_and_open_files_are_counted(machine: Any) -> None:
    machine.threads = 20
    with pytest.raises(ColobusError, match=r"^--actors 2: the run needs about \d+ threads, and 20"):
        check_limits(catch(1000))
    machine.threads, machine.files = None, 32
    said = r"may open 32 files, and this run needs 64; .*ulimit -n"
    with pytest.raises(ColobusError, match=said):
        check_limits(catch(1000))


@pytest.mark.parametrize(
    "experiment",
    [
        catch(1000),
        reshaped(catch(1000), actors=4, replays=2),
        PRESETS["dba3c-catch"],
        reshaped(PRESETS["gorila-catch"], workers=0, learners=2, actors=3, replays=2),
        reshaped(catch(1000), learners=2, reduce="group"),
    ],
    ids=["central", "queues", "workers", "separate", "group"],
)
@pytest.mark.parametrize("per_process", [1, 2, 5])
def test_processes_are_counted_as_they_will_be(experiment: Experiment, per_process: int) -> None:
    graph = make_graph(experiment, imagined_start(experiment), None, spread=True)
    names = [spec.name for spec in group_processes(graph, per_process)]
    assert experiment.shape.topology.processes(per_process) == len(names), names


def test_memory_is_checked_before_a_run_on_ray_too(machine: Any) -> None:
    many = reshaped(PRESETS["dba3c-catch"], workers=60)
    machine.memory = 2**33
    check_limits(many)  # on threads
    check_limits(many, Cluster(per_process=20))
    fix = r"most of it for processes, .*; lower --workers or --actors, or raise --per-process$"
    with pytest.raises(ColobusError, match=fix):
        check_limits(many, Cluster())
    check_limits(many, Cluster("10.0.0.1:6379"))  # other hosts have memory of their own
    with pytest.raises(ColobusError, match="in the whole cluster; lower --workers"):
        check_cluster_memory(many, Cluster("10.0.0.1:6379"), 2**33)
    check_cluster_memory(many, Cluster("10.0.0.1:6379"), 2**34)
    check_cluster_memory(many, Cluster("10.0.0.1:6379"), 0)  # Ray does not say


def test_a_resume_needs_processes_that_play_the_games_on(machine: Any) -> None:
    many = reshaped(PRESETS["pong"], actors=100, games=1)
    machine.memory, machine.files = 3 * 2**30, 128
    check_limits(many)
    said = r"most of it for continued games, .*; lower --actors in a new run$"
    with pytest.raises(ColobusError, match=said):
        check_limits(many, resumed=True)
    machine.memory = None
    with pytest.raises(ColobusError, match=r"may open 128 files, and this run needs 264; "):
        check_limits(many, resumed=True)
    check_limits(catch(1000), resumed=True)  # goes on without helpers
    check_limits(reshaped(many, games=2, emulators=2), resumed=True)  # begins new games


def test_a_run_that_keeps_its_buffer_goes_on_on_ray_without_it(machine: Any) -> None:
    keeps = dqn(catch(1000), keep=True)
    with pytest.raises(ColobusError, match=r"^--keep with --on ray: "):
        OnRay().check(keeps, Devices())
    OnRay().check(keeps, Devices(), resumed=True)
