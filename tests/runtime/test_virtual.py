"""Simulated time: by hand, and as an oracle of whole runs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.timing import Condition, now, passing, sleep
from colobus.core.types import Request
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.ops.flat import FlatParameters
from colobus.roles.tracker import StopRule
from colobus.runs.config import read_config
from colobus.runtime import ray
from colobus.runtime.graph import RoleGraph
from colobus.runtime.groups import Hosts, ProcessSpec, group_processes
from colobus.runtime.virtual import (
    STORED,
    Calls,
    Draw,
    Host,
    Process,
    Virtual,
    World,
    placed,
    reserve,
)
from colobus.training.on_virtual import bytes_a_second, simulated
from colobus.training.run import train
from colobus.training.start import begin, open_games
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, make_net, reshaped
from helpers.launching import refused
from helpers.outcomes import Outcome, assert_same, equal, inline, outcome, spread


def free(_role: str, _stage: str, _chance: Random) -> float:
    return 0.0


def virtual(
    experiment: Experiment,
    draw: Draw = free,
    calls: Calls | None = None,
    hosts: Sequence[Host] = (Host(),),
) -> tuple[Outcome, float]:
    """Return what is left of a run in simulated time, and when it ended.

    Its processes are on these hosts in turn: those of the tracker, the servers and the workers.
    """
    world = World(draw, calls, experiment.seed)
    with passing(world):
        games = open_games(experiment)
        start = begin(experiment, games)
        graph = make_graph(experiment, start, None, 0.0, games=games, spread=True)
        runtime = Virtual(graph, world, list(zip(group_processes(graph, 1), cycle(hosts))))
        runtime.start()
        while not runtime.wait(0.5):
            runtime.check()
        runtime.check()
        end = world.now()
        assert runtime.stop() == []  # those that work end their step
        return outcome(runtime.roles), end


@pytest.mark.parametrize(("hosts", "servers"), [(1, "000"), (2, "111"), (3, "121"), (4, "123")])
def test_servers_leave_the_host_of_the_tracker_to_it(hosts: int, servers: str) -> None:
    names = ["tracker", *(f"{kind}-{n}" for kind in ("server", "worker") for n in range(3))]
    kinds: list[Any] = [name.partition("-")[0] for name in names]
    specs = [ProcessSpec(name, kind, (), False) for name, kind in zip(names, kinds, strict=True)]
    there, graph = [Host() for _ in range(hosts)], RoleGraph()
    where = "".join(str(there.index(host)) for _, host in placed(graph, specs, there))
    assert where == "0" + servers + "".join(str(n % hosts) for n in range(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment",
    [
        catch(512 + 12 * 512, deterministic=True),
        distributed_catch(12),
        distributed_catch(9, workers=3, servers=1),
    ],
    ids=["central", "workers", "three workers"],
)
def test_a_run_that_costs_nothing_is_the_inline_run_bit_for_bit(experiment: Experiment) -> None:
    assert_same(inline(experiment), virtual(experiment)[0])


def in_turn(world: World, host: Host, jobs: Sequence[Callable[[], object]]) -> list[float]:
    """Return when each job, in a process of its own on a host, ends."""
    ends, woken = {}, Condition()

    def run(index: int) -> None:
        world.begin(str(index))
        jobs[index]()
        ends[index] = now()
        with woken:
            woken.notify_all()
        world.end()

    with passing(world):
        for index in range(len(jobs)):
            world.process_of[str(index)] = Process(str(index), host, Condition())
            world.expect(str(index))
            threading.Thread(target=run, args=(index,), daemon=True).start()
        with woken:
            assert woken.wait_for(lambda: len(ends) == len(jobs), 100.0)
    return [ends[index] for index in range(len(jobs))]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("cores", "jobs", "ends"),
    [
        (2, [(0.0, 1.0), (0.0, 3.0)], [1.0, 3.0]),
        (1, [(0.0, 1.0), (0.0, 3.0)], [2.0, 4.0]),  # half a core each, then the second a whole one
        (1, [(0.0, 2.0), (1.0, 2.0)], [3.0, 4.0]),
        (2, [(0.0, 2.0)] * 3, [3.0] * 3),
        (0.5, [(1.0, 1.0)], [3.0]),
    ],
)
def test_threads_share_the_cores_of_a_host(
    cores: float, jobs: list[tuple[float, float]], ends: list[float]
) -> None:
    world = World(free)

    def job(begin: float, seconds: float) -> None:
        sleep(begin)
        world.work(seconds)

    found = in_turn(world, Host(cores), [partial(job, *each) for each in jobs])
    assert found == pytest.approx(ends)


def test_many_callers_wait_for_the_loop_of_the_process_that_is_called() -> None:
    """As where it was measured: a round trip is as long as the loop takes for all of them."""
    world = World(free, Calls(loop=1.0))
    world.roles = {"echo": SimpleNamespace(take=abs)}
    world.process_of["echo"] = Process("echo", Host(), Condition())
    call = partial(world.call, Request(0, "echo", "take", (1,), {}))
    assert max(in_turn(world, Host(), [call] * 8)) == pytest.approx(8.0)


def test_a_link_carries_one_thing_after_the_other() -> None:
    one, two, server = (Host(link=10.0) for _ in range(3))
    assert reserve(0.0, one, server, 20) == 2.0
    assert reserve(0.0, two, server, 20) == 4.0  # it left in time and waits at the server
    assert reserve(0.0, server, one, 20) == 2.0  # the other direction is free
    assert reserve(1.0, two, one, 20) == 4.0  # its own link was free after 2 s
    assert reserve(9.0, two, one, 20) == 11.0
    assert reserve(9.0, two, server, 20) == 13.0  # it leaves after 11 s
    assert reserve(9.0, one, server, 20) == 11.0  # nothing has come there yet


FREELY = replace(distributed_catch(20, servers=1), deterministic=False)


def learning(*seconds: float) -> Draw:
    """Return what learning costs each learner; all else is free."""
    by_role = {f"learner-{index}": each for index, each in enumerate(seconds)}
    return lambda role, stage, _chance: by_role[role] if stage == "learn" else 0.0


@pytest.mark.slow
def test_two_workers_and_a_link_by_hand() -> None:
    """Both learn for 1 s, and a vector takes 0.25 s on a link.

    From a version on: the vectors reach the two after 0.25 and 0.5 s, the gradients come after 1.5
    and 1.75 s, and then there is the next version.
    """
    size = make_net(FREELY.network, heads={"policy": 3, "value": 1})
    rate = 4 * FlatParameters(size).layout.size / 0.25
    hosts = [Host(link=rate) for _ in range(4)]
    there, seconds = virtual(FREELY, learning(1.0, 1.0), Calls(envelope=0), hosts)
    assert there.status.version == 20
    assert seconds == pytest.approx(20 * 1.75)
    assert there.status.lag == (1.0, 1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("servers", "calls"),
    [(2, Calls(latency=0.25, envelope=0)), (1, Calls(cpu=0.25, envelope=0))],
    ids=["calls travel", "calls are work at both ends"],
)
def test_servers_are_asked_at_once_by_hand(servers: int, calls: Calls) -> None:
    """A call takes 0.25 s, and so does its answer, or the work for both at either end.

    A round is 1 s of learning and two round trips: one is the report, and one is to all servers. At
    the beginning the tracker is asked, too.
    """
    experiment = distributed_catch(20, workers=1, servers=servers, games=1)
    hosts = [Host() for _ in range(servers + 2)]
    there, seconds = virtual(experiment, learning(1.0), calls, hosts)
    assert there.status.version == 20
    assert seconds == pytest.approx(20 * 2.0, abs=1.5)


def test_an_object_of_the_store_costs_something_besides_its_bytes() -> None:
    assert int(ray.INLINE[1]) == STORED
    calls = Calls(byte=1e-9, stored=1e-3, carried=4e-9)
    assert calls.packing(500_000) == pytest.approx(2e-3)
    assert calls.packing(STORED - 1) == pytest.approx(4e-3)
    assert calls.packing(STORED) == pytest.approx(2e-3)


def test_idle_processes_leave_less_of_the_cores_of_their_host() -> None:
    """Each is asked how it is twice a second, the tracker four times as often."""
    experiment, world = distributed_catch(1), World(free, Calls(idle=0.1, cpu=0.01))
    with passing(world):
        graph, _ = spread(experiment)
        simulated(graph, world, Hosts(hosts=2, host_cores=1.0))
    names = {own.host: set[str]() for own in world.process_of.values()}
    for own in world.process_of.values():
        names[own.host].add(own.name)
    assert sorted(map(len, names.values())) == [2, 3]  # two workers, two servers and the tracker
    for host, there in names.items():
        asked = 2 * 0.01 * (len(there) + 3 * ("tracker" in there))
        assert host.cores == pytest.approx(1.0 - 0.1 * len(there) - asked)


@pytest.mark.slow
def test_a_backup_worker_that_is_slow_is_dropped() -> None:
    """One learns for 1 s and makes every version; the other for 2.6 s and is always too late.

    After 29 s they have reported 29 and 11 batches, the 40 of the stop rule. What became of the
    last one of each is not known yet.
    """
    experiment = reshaped(FREELY, quorum=1)
    there, seconds = virtual(experiment, learning(1.0, 2.6))
    assert (there.status.version, seconds) == (29, 29.0)
    assert there.status.workers is not None
    traffic = there.status.workers.traffic
    assert (traffic.counted, traffic.dropped) == (28, 10)


@pytest.mark.slow
def test_catch_is_learned_though_one_of_three_workers_is_always_too_late() -> None:
    base = replace(FREELY, stop=PRESETS["dba3c-catch"].stop)
    status = virtual(reshaped(base, workers=3, quorum=2), learning(2.6, 1.0, 1.0))[0].status
    assert status.best is not None
    assert status.best >= 0.9
    assert status.steps < 300_000
    assert status.workers is not None
    counted, dropped, partial, *_ = status.workers.traffic
    assert dropped > 0
    assert status.workers.updates <= counted + dropped + partial + 3


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{"quorum": 2}, {"asynchronous": True, "max_staleness": 20}])
def test_a_seed_gives_the_same_run_without_any_order_among_learners(shape: dict[str, Any]) -> None:
    base = distributed_catch(15, workers=3)
    experiment = replace(reshaped(base, **shape), deterministic=False)

    def draw(_role: str, stage: str, chance: Random) -> float:
        return chance.expovariate(1.0 / {"learn": 0.05, "emulate": 0.001}.get(stage, 1e-4))

    (one, end), (two, other_end) = (
        virtual(experiment, draw, Calls(1e-3, 1e-3, 1e-9), [Host(1, 1e6), Host(1, 1e6)])
        for _ in range(2)
    )
    assert end == other_end > 0.5
    assert one.parameters.isfinite().all()
    assert one.parameters.equal(two.parameters)
    assert one.status == two.status


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        *(("10Gb", 1.25e9), ("10 Gb/s", 1.25e9), ("10GBit/s", 1.25e9), ("10Gbit", 1.25e9)),
        *(("20MB", 2e7), ("4 MB/s", 4e6), ("100Mbit/s", 12.5e6)),
    ],
)
def test_links(text: str, speed: float) -> None:
    assert bytes_a_second(text) == speed


@pytest.mark.parametrize("text", ["", "10", "10GB/h", "0Gb", "-1Gb", "fast"])
def test_no_links(text: str) -> None:
    with pytest.raises(ColobusError, match="--link"):
        bytes_a_second(text)


@pytest.mark.slow
def test_a_run_in_simulated_time_counts_simulated_minutes(tmp_path: Path) -> None:
    """Both workers learn for 3 s each time: 20 versions in a minute, however long that took."""
    base = replace(FREELY, stop=StopRule(minutes=1.0))
    hosts = Hosts(costs="learn=3s", link="1000000Gb")
    run = partial(train, log=lambda _: None, cluster=hosts)
    first, second = (run(base, tmp_path / name) for name in ("one", "two"))
    assert first.status.version == 20
    assert first.status == second.status
    lines = (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["seconds"] == pytest.approx(60.0, abs=1e-3)
    about = read_config(tmp_path / "one").about
    assert about["time"] == "simulated, costs learn=3s, link 1000000Gb"
    (one, two) = (newest_checkpoint(tmp_path / name / "checkpoints")[1] for name in ("one", "two"))
    assert one.version == two.version
    assert equal(one.tensors, two.tensors)
    again = run(replace(base, stop=StopRule(minutes=2.0)), tmp_path / "one", "", True)
    assert again.status.seconds == pytest.approx(120.0, abs=1.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "virtual"], "was measured yet; measure it: .* bench dba3c-catch --costs"),
        (["--on", "virtual", "--costs", "learn=5"], "learn=5: must be a file"),
        (["--on", "virtual", "--costs", "learn=5s", "--link", "9"], "--link 9: must be such as"),
        (
            ["--on", "virtual", "--costs", "learn=0s", "--minutes", "5"],
            "--minutes 5 with --costs learn=0s: no time passes",
        ),
        (["--hosts", "3"], "--hosts 3: has an effect only with --on virtual"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(words: list[str], said: str) -> None:
    assert re.search(said, refused("train", "dba3c-catch", *words))
