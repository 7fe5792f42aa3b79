"""Hosts by name: lists of them, who goes where, and runs that wait for a host."""

from __future__ import annotations

import random
import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from colobus.core.errors import ColobusError
from colobus.experiment.memory import imagined_network, role_memory, store_bytes
from colobus.experiment.settings import Experiment
from colobus.ops.flat import Layout
from colobus.roles.parameters.published import KEPT
from colobus.runtime.groups import Cluster, Room, expand, hosts_of_job, need_of, plan_hosts
from conftest import catch, distributed_catch, reshaped
from helpers.outcomes import spread
from helpers.ray_runs import IDLE, PATIENT, PLACES, head, node, train

LISTS = {
    "n1": "n1",
    "n[1-3,07],login": "n1 n2 n3 n07 login",
    "n[08-11]": "n08 n09 n10 n11",
    "rack[1-2]n[1-2].x": "rack1n1.x rack1n2.x rack2n1.x rack2n2.x",
    "a-1,b[2]": "a-1 b2",
}


@pytest.mark.parametrize(("text", "names"), LISTS.items())
def test_a_list_is_expanded_as_slurm_does(text: str, names: str) -> None:
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "n[1-", "n]1[", "n[3-1]", "n[]", "n[a-b]", "n[1-2]]", "n1,", "n1,,n2", "n1,n1"),
        *("n 1", "n;rm", "n[1-9999999]", "n[1-60000]m[1-9]"),
    ],
)
def test_what_is_no_list_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ColobusError, match=rf"^{re.escape(repr(text))}: is no list of hosts"):
        expand(text)


FOUR = {name: Room(4.0) for name in ("n1", "n2", "n3", "n4")}


def planned(place: str, experiment: Experiment, apart: bool = False) -> dict[str, str]:
    """Return on which of four hosts each process is to be."""
    cluster = Cluster(place=place, sidecars_apart=apart)
    return plan_hosts(*spread(experiment), cluster, FOUR, {})


def on(kind: str, hosts: str) -> dict[str, str]:
    """Return where the processes of a kind are: "12" are n1 and n2."""
    return {f"{kind}-{number}": f"n{host}" for number, host in enumerate(hosts)}


@pytest.mark.parametrize(
    ("place", "found"),
    [
        # servers ask for no CPU and take turns; workers go where nobody else was named
        ("servers=n[1-2]", on("server", "121") | on("worker", "343")),
        ("servers=n4 workers=n[2-3]", on("server", "444") | on("worker", "232")),
        # whoever may be on few hosts goes first, in whatever order they are named
        (
            "workers=n[1-2] evaluator=n1",
            {"evaluator": "n1"} | on("worker", "2121212") | on("server", "343"),
        ),
        # all hosts are named: the others go anywhere, the fullest last
        ("workers=n[1-4]", on("worker", "123") | on("server", "444")),
        ("", {}),
    ],
)
def test_processes_go_to_the_hosts_that_are_named(place: str, found: dict[str, str]) -> None:
    apart = "evaluator" in place
    hosts = planned(place, distributed_catch(1, workers=7 if apart else 3, servers=3), apart)
    assert list(hosts.items()) == list(found.items())  # in this order


def test_named_actors_of_a_queue_go_together_and_it_goes_there() -> None:
    experiment = reshaped(catch(1000), actors=4, replays=2)
    found = {"main": "n3"} | on("actor", "1122") | on("replay", "12")
    assert planned("actors=n[1-2] main=n3", experiment) == found


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("workers=n[1-2]", "ask for 1 CPUs each have to be on n1 to n2, which hold 8"),
        ("workers=n1,n1.x", "9 processes that ask for 1 CPUs each have to be on n1, which hold 4"),
        ("servers=n9", "server-0 has to be on n9, which is not in the cluster; there are n1, n2"),
        ("servers=n[1-", "--place servers=n[1-: 'n[1-': is no list of hosts"),
        ("servers", "--place servers: want KIND=HOSTS, such as servers=n[1-4]"),
        ("evaluator=n1", "evaluator=n1: the run has no such process; it has: server, worker"),
        ("tracker=n1", "--place tracker=n1: the tracker lives where the command is given"),
        ("servers=n1 server=n2", "--place server=n2: server-0 has other hosts already"),
        ("recorder=n1 workers=n[1-2],n4", "not enough CPUs, GPUs or memory for all that has to"),
    ],
)
def test_hosts_that_cannot_be_are_told_in_a_line(place: str, said: str) -> None:
    apart = "recorder" in place
    with pytest.raises(ColobusError, match=re.escape(said)) as caught:
        planned(place, distributed_catch(1, workers=12 if apart else 9), apart)
    assert "\n" not in str(caught.value)


def test_the_hosts_of_a_job_are_those_that_slurm_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)  # of a job that the tests may run in
    assert hosts_of_job() == {}
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3],m7")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "12(x3),8")
    cpus = {name: room.cpus for name, room in hosts_of_job().items()}
    assert cpus == {"n1": 12.0, "n2": 12.0, "n3": 12.0, "m7": 8.0}


def test_ray_is_asked_for_the_memory_of_the_roles() -> None:
    experiment = distributed_catch(1, workers=2, actors=3)
    _, specs = spread(experiment)
    memory = role_memory(experiment)
    own, actor, learner = (memory[name] for name in ("process", "actor", "learner"))
    needs = {spec.name: need_of(spec, Cluster(), memory) for spec in specs}
    assert needs["worker-1"] == Room(1.0, 0, own + 3 * actor + learner)
    assert needs["server-0"] == needs["tracker"] == Room(0.0, 0, own)
    assert need_of(specs[-1], Cluster(cpus=1e-5), {}) == Room(0.0)  # as in Ray
    unknown = [need_of(spec, Cluster(), {}) for spec in specs]
    assert unknown == [Room(need.cpus) for need in unknown]


@pytest.mark.parametrize("text", ["10", "m", "1.5h", "-1s", "10 m", ""])
def test_a_time_to_wait_has_a_unit(text: str) -> None:
    with pytest.raises(ColobusError, match=r"^--wait-for-hosts .*: want a time such as 90s, "):
        _ = Cluster(wait_for_hosts=text).patience


@pytest.mark.cluster
def test_a_run_waits_for_a_host_and_goes_where_it_is_told(tmp_path: Path) -> None:
    with head(cpus=1) as there:
        words = ("--address", there.address, "--place", "workers=late", "--steps", 3000)
        waits = (*words, "--wait-for-hosts")
        late = train(tmp_path / "1", "dba3c-catch", *waits, "3s", env=there.env)
        code, _, log = late.end()
        assert code == 2
        assert "colobus: after 0:03 of --wait-for-hosts: --place: worker-0 has to be on late" in log
        assert not late.path.exists()
        run = train(tmp_path / "2", "dba3c-catch", *waits, "5m", env=there.env, code=PLACES)
        run.wait(lambda: "waiting for hosts, " in run.log)
        assert run.version() == 0
        with node(there, "late", cpus=2):
            code, _, log = run.end()
        assert code == 0, log
        places = dict(re.findall(r"^PLACE (\S+) \S+ (\S+)$", log, re.MULTILINE))
        assert places["worker-0"] == places["worker-1"] == "late" != places["tracker"]


@pytest.mark.cluster
def test_prometheus_is_told_of_a_run_by_the_exporter_of_ray(tmp_path: Path) -> None:
    with socket.socket() as free:  # above Ray's own, and below those that anybody is given
        free.bind(("", random.randrange(20_000, 32_000)))
        port = free.getsockname()[1]

    def exported() -> dict[str, float]:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            lines = page.read().decode()
            found = re.findall(r"^ray_colobus_(\w+)\{(.*)\} (\S+)$", lines, re.MULTILINE)
            return {name: float(value) for name, tags, value in found if str(tmp_path) in tags}
        return {}

    with head(cpus=2, more=f"--metrics-export-port {port}") as there:
        words = ("--address", there.address, *IDLE, *PATIENT)
        run = train(tmp_path, "catch", *words, env=there.env)
        run.wait(lambda: exported().get("steps", 0.0) > 2_000)
        run.wait(lambda: {"version", "games", "seconds", "score", "best"} < exported().keys())
        steps = exported().get("steps", 0.0)  # a page may fail
        run.wait(lambda: exported().get("steps", 0.0) > steps)
        assert run.interrupt()[0] == 130


def test_the_object_store_has_room_for_what_crosses() -> None:
    """Two versions at two servers and a gradient of each learner, all twice over."""
    experiment = distributed_catch(1, workers=3)
    vector = 4 * Layout(imagined_network(experiment)).size
    assert store_bytes(experiment) == 200 * 2**20 + 2 * (2 * KEPT + 3) * vector
    alone = catch(100)  # frames of two actors' trajectories cross, too
    shape, net = alone.shape, imagined_network(alone)
    frames = 2 * shape.games * (shape.length + net.stack) * 10 * 5
    vectors = (2 * KEPT + 1) * 4 * Layout(net).size
    assert store_bytes(alone) == 200 * 2**20 + 2 * (vectors + frames)
