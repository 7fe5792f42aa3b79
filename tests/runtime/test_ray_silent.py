"""Pauses of the process that watches over a run: SIGSTOP, a laptop's lid."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from gelada.runtime.groups import ProcessSpec

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("where", ["in a wait", "between", "nowhere"])
def test_nobody_is_blamed_for_a_pause_of_the_watching_process(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers have arrived in the meantime, but are not looked at yet."""
    from gelada.runtime.ray import prepare

    prepare("")
    from gelada.runtime.ray.remote import OwnPauses, RemoteProcess

    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    spec = ProcessSpec("server-0", "server", ("server-0",), learns=False)
    process = RemoteProcess(spec, handle=object(), heartbeat="a reference", asked=100.0)
    pauses = OwnPauses(4.0)

    def wait(takes: float) -> None:
        began = now[0]
        now[0] += takes
        process.asked += pauses.around(began, 0.1)

    def complain() -> str:
        return process.complaint(4.0, 120.0)

    for _ in range(10):
        wait(0.1)
    assert complain() == ""
    now[0] += 3600.0 if where == "between" else 2.5  # a call that was answered late
    wait(3600.0 if where == "in a wait" else 0.1)
    assert complain() == ""
    for _ in range(40):
        wait(0.1)
    assert "has given no answer for" in complain()  # that was no pause, but silence


def test_one_that_is_frozen_when_it_begins_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one answers nothing before it has begun, so nothing is asked of it."""
    from gelada.runtime.ray import prepare

    prepare("")
    from gelada.runtime.ray.remote import RemoteProcess

    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    spec, handle = ProcessSpec("server-0", "server", ("server-0",), learns=False), MagicMock()
    for new in (True, False):
        process = RemoteProcess(spec, handle=handle, new=new)
        process.begin(1, None, {}, 120.0)
        process.ask_heartbeat()
        assert (process.heartbeat is None) == new
        now[0] += 25.0
        assert process.complaint(4.0, 120.0) == ""  # it may be busy
        now[0] += 6.0
        assert process.complaint(4.0, 120.0) == ("" if new else "has given no answer for 31.0 s")


@pytest.mark.parametrize(
    ("addresses", "outside"),
    [(["127.0.0.1"], False), (["127.0.0.1", "10.0.0.7"], True), (["head.example"], True)],
)
def test_a_cluster_on_the_loopback_is_on_no_network(
    addresses: list[str], outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gelada.runtime.ray import prepare

    prepare("")
    import ray

    from gelada.runtime.ray.session import is_on_network

    gone = {"NodeManagerAddress": "10.0.0.9", "Alive": False}
    nodes = [{"NodeManagerAddress": address, "Alive": True} for address in addresses]
    monkeypatch.setattr(ray, "nodes", lambda: [gone, *nodes])
    assert is_on_network() == outside


def test_making_processes_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    from gelada.runtime.ray import prepare

    prepare("")
    from gelada.runtime.ray.remote import OwnPauses

    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    pauses = OwnPauses(4.0)
    now[0] += 60.0
    pauses.look()
    now[0] += 0.1
    assert pauses.around(160.0, 0.1) == 0.0
