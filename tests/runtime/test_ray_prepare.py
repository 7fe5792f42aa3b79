"""What is set and what is refused before Ray is imported. Ray itself is not needed here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from colobus.core.errors import ColobusError
from colobus.runtime.ray import INLINE, prepare
from colobus.runtime.ray.own_cluster import END_SECONDS, end_writers, own_folder, writers
from helpers.launching import is_gone, wait_until
from helpers.ray_runs import imported

READ = (
    *("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"),
    *("RAY_NUM_REDIS_GET_RETRIES", "RAY_TMPDIR", INLINE[0]),
)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is not imported, and what a test sets in the environment is forgotten."""
    for name in READ:
        monkeypatch.setenv(name, "")  # so that it is given back even if it was not there
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "ray", raising=False)


def test_a_ray_of_its_own_is_on_the_loopback_and_has_a_token() -> None:
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
    assert prepare("") == ""
    assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_the_address_of_the_environment_is_that_of_a_cluster() -> None:
    os.environ["RAY_ADDRESS"] = "10.0.0.1:6379"
    assert prepare("") == "10.0.0.1:6379"
    assert prepare("10.0.0.2:6379") == "10.0.0.2:6379"
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_a_ray_of_its_own_without_a_token_is_refused() -> None:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with pytest.raises(ColobusError, match=r"^RAY_AUTH_MODE=disabled: without a token every user"):
        prepare("")
    assert prepare("10.0.0.1:6379") == "10.0.0.1:6379"  # how that was started is another's choice


def test_ray_must_not_have_been_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    imported(monkeypatch, everywhere=True)
    said = r"^Ray was imported before the run, so a Ray of its own would open its ports"
    with pytest.raises(ColobusError, match=said):
        prepare("")
    assert prepare("10.0.0.1:6379") == "10.0.0.1:6379"
    assert os.environ[INLINE[0]] == INLINE[1]  # processes of that cluster are told
    imported(monkeypatch, everywhere=False, asks=False)
    with pytest.raises(ColobusError, match=r"to all users of this machine; import ray later"):
        prepare("")
    imported(monkeypatch, everywhere=False)  # by an earlier run of this process
    assert prepare("") == ""


@pytest.mark.processes
def test_the_folder_of_ray_is_closed_to_others_and_deleted() -> None:
    os.environ["RAY_TMPDIR"] = "/a/folder/whose/path/is/too/long"
    with own_folder() as folder:
        folder.mkdir(0o777)
        (folder / "session").touch()
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert len(str(folder)) < 25
    assert not folder.parent.exists()


@pytest.mark.processes
def test_all_who_write_into_the_folder_are_ended_and_no_others(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    nested = f"import subprocess, time; subprocess.Popen({sleep!r}).wait(); time.sleep(1000)"
    (tmp_path / "mine").mkdir()
    with (tmp_path / "mine" / "log").open("w") as log, Path(log.name).open() as reads:
        other = subprocess.Popen(sleep, stdin=reads)
        parent = subprocess.Popen([sys.executable, "-c", nested], stdout=log)
        try:
            while len(writers(tmp_path / "mine")) < 2:
                assert parent.poll() is None
            assert other.pid not in writers(tmp_path / "mine")
            end_writers(tmp_path / "mine")  # but not this process, which has the file open, too
            assert parent.wait(END_SECONDS) < 0
            assert writers(tmp_path / "mine") == set()
            assert other.poll() is None
        finally:
            for process in (parent, other):
                process.kill()
                process.wait()


OWNER = """
import subprocess, sys
from colobus.runtime.ray.own_cluster import own_folder

with own_folder() as folder:
    folder.mkdir()
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with (folder / "log").open("w") as log:
        writes = subprocess.Popen(sleep, stdout=log)
    print(folder.parent, writes.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
@pytest.mark.parametrize("killed", [False, True])
def test_a_process_that_is_killed_leaves_neither_folder_nor_processes(killed: bool) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    folder, number = owner.stdout.readline().split()
    assert Path(folder).is_dir()
    if killed:
        owner.kill()
    owner.communicate()
    assert owner.returncode == (-9 if killed else 0)
    wait_until(lambda: not Path(folder).exists() and is_gone(int(number)))
