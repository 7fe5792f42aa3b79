"""A Ray cluster that is there already and has other users, and what can be wrong: a line each."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from colobus.core.errors import ClusterLost, ColobusError
from colobus.evaluation.agent import load
from colobus.runtime.groups import Cluster, ProcessSpec
from colobus.runtime.host import About
from colobus.runtime.system import versions
from helpers.ray_runs import IDLE, PATIENT, Begin, Head, Run, head, train

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def there() -> Iterator[Head]:
    with head(cpus=3) as started:
        yield started


def refused(run: Run) -> str:
    """The run ends with exit code 2, one line and nothing on stdout; return the line."""
    code, out, log = run.end()
    assert (code, out) == (2, "")
    opening, line = log.splitlines()
    assert opening.startswith("learning catch into ")
    assert line.startswith("colobus: ")
    assert not run.path.exists()
    return line.removeprefix("colobus: ")


def short_run(folder: Path, *words: object, **more: Any) -> Run:
    return train(folder / "short", "catch", "--until-score", 2, "--steps", 10_000, *words, **more)


def test_two_runs_on_one_cluster_do_not_disturb_each_other(begin: Begin, there: Head) -> None:
    words = ("--address", there.address, *PATIENT)
    long = begin("dba3c-catch", *words, *IDLE, env=there.env)
    long.learn_on()
    short = begin(*words, make=short_run, env=there.env)
    code, out, _ = short.end()
    long.learn_on()
    code_2, out_2, _ = long.interrupt()
    assert (code, code_2) == (0, 130)
    assert (json.loads(out)["stopped"], json.loads(out_2)["stopped"]) == ("by its rule", "Ctrl-C")
    for run in (short, long):
        assert load(run.path).checkpoint.version.number > 0
        assert [run.events(name) for name in ("lost", "restored")] == [[], []]
    assert there.process.poll() is None
    assert there.empty()


def test_too_few_cpus_are_told_with_the_numbers(tmp_path: Path, there: Head) -> None:
    run = train(tmp_path, "dba3c-catch", "--address", there.address, "--cpus", 2, env=there.env)
    assert refused(run) == (
        "the run asks for 4 CPUs (2 processes, --cpus 2 each), the cluster has 3, 3 of them free; "
        "lower --cpus, raise --per-process, or take more hosts"
    )
    assert there.empty()


def test_without_the_token_nobody_joins(tmp_path: Path, there: Head) -> None:
    other = tmp_path / "token"
    other.write_text("0" * 64)
    fix = (
        "copy the head host's ~/.ray/auth_token, or set RAY_AUTH_TOKEN_PATH; if that cluster was "
        "started without a token, set RAY_AUTH_MODE=disabled"
    )
    cases = (
        ("another token there", {"RAY_AUTH_TOKEN_PATH": str(other)}),
        ("no token here", {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}),
        ("another token there", {"RAY_AUTH_MODE": "disabled"}),
    )
    for i, (said, env) in enumerate(cases):
        env = {"RAY_NUM_REDIS_GET_RETRIES": "2", **env}  # else it would ask for ten seconds
        run = train(tmp_path / f"{i}", "catch", "--address", there.address, env=env)
        assert refused(run) == f"Ray at {there.address}: {said}: {fix}"


MISTAKES = '''
from functools import partial
import colobus.cli.train
from colobus.cli.main import main
from colobus.training.topology import make_graph
from colobus.core.timing import Clock


class Breaker:
    """Active: its third step, or what it asks of a shop, is a mistake."""

    def __init__(self, shop):
        self.name, self.clock, self.finished = "breaker", Clock(), False
        self.shop = shop

    def step(self):
        self.clock.steps += 1
        if self.clock.steps == 3:
            self.shop.sell() if self.shop else {}["the key"]


class Shop:
    """Passive."""

    def sell(self):
        return {}["the key"]


def with_a_mistake(*args, **kwargs):
    graph = make_graph(*args, **kwargs)
    shop = graph.add("shop", "cache", "server-1", Shop) if WHO == "shop" else None
    graph.add("breaker", "learner", "worker-1", Breaker, shop)
    return graph


colobus.cli.train.train = partial(colobus.cli.train.train, make=with_a_mistake)
'''


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("breaker", r"breaker failed at driver\.py:\d+: KeyError: 'the key'"),
        ("shop", r"shop failed in sell: KeyError: 'the key'"),
    ],
)
def test_a_mistake_in_a_role_elsewhere_comes_with_its_name_and_its_own_traceback_once(
    tmp_path: Path, there: Head, who: str, said: str
) -> None:
    run = train(
        tmp_path, "dba3c-catch", "--address", there.address, "--minutes", 5,
        env=there.env, code=f"WHO = {who!r}\n{MISTAKES}",
    )  # fmt: skip
    code, out, log = run.end()
    assert (code, out) == (1, "")
    assert len(re.findall(rf"^colobus: {said}", log, re.MULTILINE)) == 1
    assert log.count("Traceback (most recent call last)") == 1
    assert log.count('{}["the key"]\n') == 1  # the line in the source
    assert len(re.findall(r"^KeyError: 'the key'$", log, re.MULTILINE)) == 1
    assert there.empty()


IMPATIENT = """
import colobus.cli.interrupts
from colobus.cli.main import main

colobus.cli.interrupts.SAY_SECONDS = 0.3
"""


def test_ctrl_c_while_ray_starts_is_heard_and_leaves_no_folder(tmp_path: Path) -> None:
    run = train(tmp_path, "dba3c-catch", "--minutes", 5, code=IMPATIENT)
    run.wait(run.path.exists)
    code, _, log = run.interrupt()
    assert code == 130
    assert re.search(r"^Ctrl-C was heard \d+ s ago: the run is ending$", log, re.MULTILINE)
    assert "stopped by Ctrl-C before anything was learned" in log
    assert not run.path.exists()


def test_a_host_without_colobus_is_told_at_once(tmp_path: Path) -> None:
    """The host's Python finds an empty package in the place of Colobus."""
    nothing = tmp_path / "lib" / "colobus"
    nothing.mkdir(parents=True)
    (nothing / "__init__.py").touch()
    path = os.pathsep.join([str(nothing.parent), os.environ.get("PYTHONPATH", "")])
    with head(cpus=1, env={"PYTHONPATH": path}) as poor:
        run = train(tmp_path / "x", "dba3c-catch", "--address", poor.address, env=poor.env)
        assert re.fullmatch(
            r"[\w-]+ cannot start: ModuleNotFoundError: No module named 'colobus\.\w+'; "
            r"install the same colobus\[cluster\] on all hosts",
            refused(run),
        )
        assert poor.actors() == []


@pytest.mark.parametrize("package", ["python", "colobus", "torch", "ale-py", "numpy"])
def test_hosts_with_other_versions_are_refused(package: str, remote: Any) -> None:
    from colobus.runtime.ray.placement import check_versions

    process = remote.RemoteProcess(ProcessSpec("server-1", "server", ("server-1",), False))
    here = versions()
    process.about = About("host-1", 71, dict(here))
    check_versions(process)
    process.about = About("host-1", 71, here | {package: "0.0.1"})
    with pytest.raises(ColobusError) as caught:
        check_versions(process)
    said = f"server-1 on host-1 (process 71) has {package} 0.0.1, here it is {here[package]}"
    assert str(caught.value) == f"{said}: install the same on all hosts"
    assert caught.value.exit_code == 2


def test_another_ray_is_told_with_both_versions(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.runtime.ray import session

    said = "Version mismatch: The cluster has:\n    Ray: 2.40.0\nThis process:\n    Ray: 2.60.0\n"
    monkeypatch.setattr(ray, "init", Mock(side_effect=RuntimeError(said)))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ColobusError) as caught, session.connected(Cluster()):
        pass
    assert str(caught.value) == f"Ray at this machine: {' '.join(said.split())}"
    assert caught.value.exit_code == 2
    monkeypatch.setattr(ray, "init", Mock(side_effect=ConnectionError("too late")))
    with pytest.raises(ClusterLost, match=r": too late$"), session.connected(Cluster()):
        pass


def test_addresses_where_no_cluster_can_be(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from colobus.runtime.ray.session import check_reachable, connected

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = rf"^--address {address}: nobody answers there \(Connection refused\); on the head"
        with pytest.raises(ColobusError, match=said):
            check_reachable(address)
    for wrong in ("there", "10.0.0.1", "10.0.0.1:", ":6379", "10.0.0.1:ssh"):
        with pytest.raises(ColobusError, match=rf"^--address {wrong}: want HOST:PORT, such as "):
            check_reachable(wrong)
    for wrong in ("nowhere.invalid:6379", "a..b:6379", "10.0.0.1:²"):
        with pytest.raises(ColobusError, match=r"nobody answers there \(.+\); on the head host"):
            check_reachable(wrong)
    monkeypatch.setattr("socket.create_connection", Mock(side_effect=TimeoutError("timed out")))
    with pytest.raises(ClusterLost, match=r"nobody answers there \(timed out\)"):
        check_reachable("10.0.0.1:6379")
    monkeypatch.setenv("RAY_TMPDIR", "/nowhere")
    with pytest.raises(ColobusError, match=r"'/nowhere/.*; let RAY_T"), connected(Cluster()):
        pass
    monkeypatch.setenv("RAY_ADDRESS", "http://10.0.0.1:8265")
    with pytest.raises(ColobusError, match=r"^RAY_ADDRESS http://.*neither"), connected(Cluster()):
        pass
