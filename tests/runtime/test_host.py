"""Role hosts: a run in several processes that call one another, here without a network."""

from __future__ import annotations

import asyncio
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from colobus.cli.show import imagined_start
from colobus.core.errors import Closed, ColobusError, Deadline, RoleFailed
from colobus.core.timing import Clock, Condition, NotYet, PatientCall, wait_for
from colobus.core.types import Call, Remote, Request
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.runtime.graph import Handle, RoleGraph
from colobus.runtime.groups import call_threads, group_processes
from colobus.runtime.host import RoleHost
from colobus.training.start import begin
from colobus.training.topology import make_graph
from conftest import catch, distributed_catch, stand_in
from helpers.launching import LONG, on_a_thread, wait_until
from helpers.outcomes import Inline, Outcome, assert_same, outcome


def dial(host: RoleHost) -> Call:
    """Call a host on a thread of its own, as calls between processes do not wait for each other."""
    return lambda request: on_a_thread(lambda: host.call(request)).result


def on_hosts(experiment: Experiment, per_process: int) -> Outcome:
    """Run an experiment on role hosts of this process; return what is left of it."""
    start = begin(experiment)
    make = partial(make_graph, experiment, start, None, patience=60.0, spread=True)
    specs = group_processes(make(), per_process)
    there = {spec.name: RoleHost(dial) for spec in specs}
    where = {role: there[spec.name] for spec in specs for role in spec.roles}
    for spec in specs:
        there[spec.name].begin(0, make, spec.roles, where, 60.0)
    until = time.monotonic() + LONG
    while not any(state.finished for host in there.values() for state in host.heartbeat().roles):
        assert time.monotonic() < until
        assert not any(host.heartbeat().failure for host in there.values())
        time.sleep(0.02)
    for host in there.values():
        assert host.stop(30.0) == []
    return outcome({name: Remote(dial(host), 0, name) for name, host in where.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "per_process"),
    [
        (distributed_catch(20), 1),
        (distributed_catch(12, workers=3, servers=3), 1),
        (distributed_catch(10, workers=3), 2),
        (catch(6000, deterministic=True), 1),
    ],
    ids=["workers", "three workers", "workers that share a process", "central"],
)
def test_a_run_on_role_hosts_is_the_same_run(experiment: Experiment, per_process: int) -> None:
    """As inline with games that the actors make themselves, as on role hosts."""
    place = Inline(make_graph(experiment, begin(experiment), None, patience=0.0))
    place.run()
    expected = outcome(place.roles)._replace(algorithm_state={})  # the learner's own stays there
    assert_same(on_hosts(experiment, per_process), expected)


class Shop:
    def __init__(self, stock: int) -> None:
        self.stock = stock

    def sell(self, count: int = 1) -> int:
        self.stock -= count
        return self.stock

    def lose(self) -> None:
        raise ZeroDivisionError("it is nowhere")

    def refuse(self) -> None:
        raise ColobusError("not today")


def alone(role: str, cls: Any, *given: Any) -> RoleGraph:
    graph = RoleGraph()
    graph.add(role, "server", "main", cls, *given)
    return graph


def hosting(role: str, cls: Any, *given: Any, incarnation: int = 0) -> RoleHost:
    host = RoleHost(dial)
    host.begin(incarnation, partial(alone, role, cls, *given), [role], {}, 60.0)
    return host


def test_a_call_crosses_with_its_arguments_and_its_answer() -> None:
    shop: Any = Remote(dial(hosting("shop", Shop, 10, incarnation=3)), 3, "shop")
    assert [shop.sell(), shop.sell(count=4), shop.sell(2)] == [9, 5, 3]


class Street:
    """Passive: passes calls on to a shop in another process."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    def buy(self) -> int:
        return self.shop.sell()


def test_a_role_calls_the_process_that_took_the_place_of_a_lost_one() -> None:
    def make() -> RoleGraph:
        graph = alone("shop", Shop, 10)
        graph.add("street", "server", "elsewhere", Street, stand_in(Handle("shop")))
        return graph

    old, new = (hosting("shop", Shop, stock, incarnation=2) for stock in (10, 50))
    host = RoleHost(dial)
    host.begin(2, make, ["street"], {"shop": old}, 60.0)
    street: Any = Remote(dial(host), 2, "street")
    assert street.buy() == 9
    host.redial(1, {"shop": new})  # of an earlier incarnation: came late
    assert street.buy() == 8
    host.redial(2, {"shop": new})
    assert [street.buy(), street.buy()] == [49, 48]


def test_what_a_role_refuses_arrives_as_it_was_said_and_a_mistake_names_the_role() -> None:
    shop: Any = Remote(dial(hosting("shop", Shop, 1)), 0, "shop")
    with pytest.raises(ColobusError, match=r"^not today$"):
        shop.refuse()
    with pytest.raises(RoleFailed) as caught:
        shop.lose()
    assert str(caught.value) == "shop failed in lose: ZeroDivisionError: it is nowhere"
    assert "in lose\n    raise ZeroDivisionError" in caught.value.details


def test_a_call_of_an_earlier_epoch_is_refused_and_one_of_a_later_epoch_waits() -> None:
    host = hosting("shop", Shop, 10, incarnation=1)
    old: Any = Remote(dial(host), 0, "shop")
    with pytest.raises(Closed):
        old.sell()
    new: Any = Remote(dial(host), 2, "shop")
    early = on_a_thread(new.sell)
    time.sleep(0.1)
    assert not early.done()
    host.begin(2, partial(alone, "shop", Shop, 50), ["shop"], {}, 60.0)
    assert early.result(30) == 49
    # one that comes late undoes nothing
    host.begin(1, partial(alone, "shop", Shop, 10), ["shop"], {}, 60.0)
    assert new.sell() == 48


def test_a_call_waits_as_long_as_a_start_may_take(now: list[float]) -> None:
    host, call = RoleHost(dial), PatientCall(lambda: None)
    for _ in range(50):
        with pytest.raises(NotYet):
            call(host.call, Request(0, "shop", "sell", (), {}))
        now[0] += 5.0


class Door:
    """Passive: all who came wait until there are so many."""

    def __init__(self, size: int, patience: float) -> None:
        self._changed = Condition()
        self._size, self._patience, self._closed = size, patience, False
        self._there = set[int]()

    def enter(self, number: int) -> int:
        with self._changed:
            if number not in self._there:  # it may be called again
                self._there.add(number)
                self._changed.notify_all()
            if not wait_for(self._changed, self._opens, self._patience):
                raise Deadline(f"no crowd for {number}")
        if self._closed:
            raise Closed
        return number

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _opens(self) -> bool:
        return self._closed or len(self._there) >= self._size


@pytest.mark.parametrize("size", [100, 101])
def test_calls_that_wait_hold_no_threads(size: int) -> None:
    """A hundred calls wait for one another on two threads; for one more they wait in vain."""
    host = hosting("door", Door, size, 0.2 if size > 100 else 60.0)

    async def all_enter() -> list[Any]:
        with ThreadPoolExecutor(2) as threads:
            requests = [Request(0, "door", "enter", (number,), {}) for number in range(100)]
            asked = [host.answer(request, threads) for request in requests]
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(all_enter())
    if size == 100:
        assert answers == list(range(100))
    else:
        assert {type(answer) for answer in answers} == {Deadline}
        assert str(answers[7]) == "no crowd for 7"


def test_a_call_that_waits_ends_when_the_run_stops() -> None:
    host, request = hosting("door", Door, 2, 60.0), Request(0, "door", "enter", (1,), {})

    async def enter() -> None:
        with ThreadPoolExecutor(1) as threads:
            asked = asyncio.ensure_future(host.answer(request, threads))
            await asyncio.wait([asked], timeout=0.05)
            assert not asked.done()
            await asyncio.get_running_loop().run_in_executor(None, host.stop, 1.0)
            with pytest.raises(Closed):
                await asked

    asyncio.run(enter())


@pytest.mark.parametrize(
    ("experiment", "per_process", "threads"),
    [  # by hand: the active roles elsewhere that call a role here, and the driver; 8 at most
        (
            distributed_catch(1, workers=3, actors=1, servers=2),
            1,  # 3 learners call a server; 3 actors and 3 learners the tracker; nobody a worker
            {"tracker": 7, "server-0": 4, "server-1": 4, "worker-0": 1, "worker-2": 1},
        ),
        (distributed_catch(1, workers=3, actors=1, servers=1), 2, {"tracker": 7, "server-0": 4}),
        # two actors call the servers and the queue of the learner's process
        (catch(100), 1, {"tracker": 4, "main": 3, "actor-0": 1}),
        (
            PRESETS["dba3c-breakout-paper"],
            1,
            {"tracker": 8, "server-3": 8, "worker-0": 1, "worker-63": 1},
        ),
    ],
    ids=["workers", "shared", "central", "paper"],
)
def test_a_process_has_threads_for_those_who_call_it(
    experiment: Experiment, per_process: int, threads: dict[str, int]
) -> None:
    start = imagined_start(experiment)
    graph = make_graph(experiment, start, None, spread=True)
    found = call_threads(graph, group_processes(graph, per_process))
    assert {name: found[name] for name in threads} == threads
    assert max(found.values()) <= 8


class Worker:
    """Active: fails at its third step, and has finished after the next."""

    def __init__(self) -> None:
        self.name, self.clock, self.finished = "worker", Clock(), False

    def step(self) -> None:
        self.clock.steps += 1
        if self.clock.steps == 3:
            raise KeyError("the key")
        self.finished = self.clock.steps > 3


class Restartable(Worker):
    def restart(self) -> None:
        pass


def test_a_heartbeat_tells_who_failed_and_has_the_traceback() -> None:
    host = hosting("worker", Worker)
    wait_until(lambda: host.heartbeat().failure)
    heartbeat = host.heartbeat()
    assert str(heartbeat.failure).startswith("worker failed at test_host.py:")
    there = pickle.loads(pickle.dumps(heartbeat))  # as in the process that watches
    assert "KeyError: 'the key'" in there.failure.details
    (state,) = heartbeat.roles
    assert (state.name, state.steps, state.finished) == ("worker", 3, False)


def test_a_heartbeat_tells_once_which_roles_were_restarted() -> None:
    host, told = hosting("worker", Restartable), list[Any]()
    until = time.monotonic() + LONG
    while not told:
        told += host.heartbeat().events
        assert time.monotonic() < until
    assert [(event["event"], event["role"]) for event in told] == [("restarted", "worker")]
    assert host.heartbeat().events == ()
