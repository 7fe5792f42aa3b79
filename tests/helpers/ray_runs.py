"""Runs on Ray as processes of their own, and trouble that a test orders while they go on.

A plugin: its fixtures begin runs that end with their test, and give Ray as a run imports it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any, NamedTuple, TextIO

import psutil
import pytest

from colobus.core.files import read_lines
from colobus.evaluation.agent import Agent, load
from colobus.runtime.ray import prepare
from helpers.launching import LONG, complete

SILENCE = 12.0
"""Seconds; three times the default, as tests share a machine with others."""

ONLY_JSON = ("--no-finish", "--no-tensorboard", "--json")
SMALL = ("--on", "ray", "--cpus", 0.2, "--silence", SILENCE, *ONLY_JSON)

PATIENT = ("--silence", 60)
"""After the words of a run in which nobody is frozen, so that a slow machine makes nobody so."""

ENDLESS = ("--until-score", 2, "--steps", 10_000_000)
"""Of a run that a test ends: by its rule it might end just while one of its processes is frozen."""

IDLE = (*ENDLESS, "--env", "helpers.gym_toys:Idle")
"""Of such a run that need not learn: it leaves the cores to the processes that begin anew."""

LINES = 8
"""Of metrics, a second apart, by which a run plays well; most games are in one of them only."""

STATUS = re.compile(r"[\d,]+ steps, [\d,]+ \S+/s, score ")
"""How a line begins that tells how a run goes."""

SLOW = re.compile(r"(?!colobus: ).+ did not start within \d+ s: each asks for ")
"""How a line begins that tells that processes take long to start."""

ROOT = str(Path(__file__).resolve().parents[2])

DRIVER = '''
import signal
import sys
from pathlib import Path

sys.path.insert(0, {ROOT!r})
from benchmarks.lib import faults

ORDERS = Path(__file__).with_suffix(".orders")


class Orders:
    """Takes the place of trouble drawn from the seed: does what the test has written."""

    def __init__(self, *_):
        self.done = 0

    def due(self):
        lines = ORDERS.read_text().splitlines() if ORDERS.exists() else []
        new, self.done = lines[self.done :], len(lines)
        return [(whom, int(signal.Signals[how])) for how, whom in map(str.split, new)]


faults.FaultSchedule = Orders


def main():
    sys.exit(faults.main(sys.argv[1:]))
'''.replace("{ROOT!r}", repr(ROOT))

PLACES = f"""{DRIVER}
from colobus.runtime.ray import prepare

prepare(sys.argv[sys.argv.index("--address") + 1])
import ray
from colobus.runtime.ray import runtime

begin = runtime.Ray._take_begun


def told(self, process, reference):
    begin(self, process, reference)
    if about := process.about:
        names = {{node["NodeID"]: node["NodeName"] for node in ray.nodes()}}
        words = ("PLACE", process.spec.name, about.host, names[about.node])
        print(*words, file=sys.stderr, flush=True)


runtime.Ray._take_begun = told
"""
"""The driver, which also says where each process has begun: on which host, and its name in Ray."""


def variables() -> dict[str, str]:
    """Return this process's variables for a run, which finds `helpers` by them.

    Those that a Ray of this process has left are not among them.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = [f"{ROOT}/tests", *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path)}


class Run:
    """``colobus train GAME`` on Ray; what it says goes into files.

    Args:
        folder: for the run's own folder and what it says.
        words: after ``colobus``.
        code: of the driver, before the command line begins.
        env: variables to add to this process's.
        session: start it in a session of its own, as in a terminal of its own.
    """

    def __init__(
        self,
        folder: Path,
        *words: object,
        code: str = DRIVER,
        env: Mapping[str, str] | None = None,
        session: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "run"
        self._out, self._err = folder / "out", folder / "err"
        self._script = folder / "driver.py"
        self._script.write_text(code + "\nif __name__ == '__main__':\n    main()\n")
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(self._script), *map(str, words)],
                stdout=out,
                stderr=err,
                env=variables() | dict(env or {}),
                start_new_session=session,
            )
        self.family: set[psutil.Process] = set()

    @property
    def log(self) -> str:
        """What it has said on stderr so far."""
        return self._err.read_text()

    def order(self, how: str, whom: str) -> None:
        """Have it send a signal to one of its processes of a kind."""
        with self._script.with_suffix(".orders").open("a") as file:
            file.write(f"{how} {whom}\n")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return its events of a name so far."""
        return [event for event in self.metrics("events.jsonl") if event["event"] == name]

    def version(self) -> int:
        """Return the version of its newest checkpoint (0: there is none)."""
        return max((about["version"] for about in complete(self.path)), default=0)

    def metrics(self, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
        """Return the lines of its metrics until now, or of another of its files."""
        path = self.path / file
        return read_lines(path) if path.exists() else []

    def plays_well(self, told: int = 0) -> bool:
        """Say whether the mean of its newest scores is good, by its metrics after so many lines.

        One good score would be luck on the way up: of 50 games it has an error of 0.09.
        """
        newest = self.metrics()[told:][-LINES:]
        return len(newest) == LINES and fmean(each.get("score") or 0.0 for each in newest) >= 0.9

    def look(self) -> None:
        """Note the processes that it has now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.family |= set(psutil.Process(self.process.pid).children(recursive=True))

    def wait(self, holds: Callable[[], bool] | None = None) -> None:
        """Wait for something that it does, before which it must not end; or for its end."""
        until = time.monotonic() + LONG
        while not (holds() if holds else self.process.poll() is not None):
            self.look()
            ended = holds is not None and self.process.poll() is not None
            if ended or time.monotonic() > until:
                self.process.kill()
                pytest.fail(f"it never came; exit code {self.process.poll()}; it said: {self.log}")
            time.sleep(0.2)
        self.look()

    def learn_on(self) -> None:
        """Wait for a checkpoint that is newer than the newest one."""
        newest = self.version()
        self.wait(lambda: self.version() > newest)

    def go_back(self, how: str, whom: str) -> dict[str, Any]:
        """Have one of its processes hit; return that event when the run has gone back for it."""
        hits, restored = len(self.events("hit")), len(self.events("restored"))
        self.order(how, whom)
        self.wait(lambda: len(self.events("hit")) > hits)
        self.wait(lambda: len(self.events("restored")) > restored)
        return self.events("hit")[-1]

    def assert_restored(self, count: int) -> None:
        """It went back to a checkpoint so often, each time with a new epoch."""
        restored = self.events("restored")
        assert [event["epoch"] for event in restored] == list(range(1, count + 1))
        assert all(event["lost_steps"] >= 0 for event in restored)
        form = r"^going on from (\d+)\.safetensors: ([\d,]+) steps$"
        went = re.findall(form, self.log, re.MULTILINE)
        found = [(int(version), int(steps.replace(",", ""))) for version, steps in went]
        assert found == [(event["version"], event["steps"]) for event in restored]
        assert all(version > 0 for version, _ in found)
        assert complete(self.path)[-1]["epoch"] == count

    def assert_named(self, lost: dict[str, Any]) -> None:
        """Its log says once who was lost, and where, and once that it is back."""
        whom = f"{lost['what']} on {re.escape(socket.gethostname())}"
        who = rf"{whom} \(process {lost['process']}\)"
        assert len(re.findall(rf"^{who} .*; begun again$", self.log, re.MULTILINE)) == 1
        back = rf"^{whom} \(process \d+\) is back, [\d.]+ s after it was last heard$"
        assert len(re.findall(back, self.log, re.MULTILINE)) == 1

    def end(self) -> tuple[int, str, str]:
        """Wait for its end and that of all its processes; return exit code, stdout and stderr.

        The lines that tell every few seconds how the run goes are left out of stderr, and those
        of a slow start.
        """
        self.wait()
        self.gone()
        told = self.log.splitlines(keepends=True)
        rest = (line for line in told if not (STATUS.match(line) or SLOW.match(line)))
        return self.process.returncode, self._out.read_text(), "".join(rest)

    def interrupt(self) -> tuple[int, str, str]:
        """Press Ctrl-C; return how it ends."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def kill(self) -> None:
        """End it if a test has left it running; its processes follow."""
        self.process.kill()
        self.process.wait()

    def gone(self, agents: bool = True) -> None:
        """Wait until none of its processes is there any more (or none but Ray's own agents)."""

        def left() -> list[str]:
            names = filter(None, map(running, self.family))
            return [name for name in names if agents or not name.endswith("Agent")]

        wait_while(left)


def running(process: psutil.Process) -> str:
    """Return the command of a process, "" if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return " ".join(process.cmdline()).strip() or process.name()
    return ""


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    """Return the addresses and ports at which a process listens."""
    try:
        there = process.net_connections("inet")
    except psutil.NoSuchProcess:
        return set()
    return {
        (c.laddr.ip.removeprefix("::ffff:"), c.laddr.port)
        for c in there
        if c.status == psutil.CONN_LISTEN
    }


def train(folder: Path, game: str, *words: object, **more: Any) -> Run:
    """Begin a small run that saves often."""
    saves = ("--checkpoint-seconds", 2, *(("--keep-every", 5) if "dba3c" in game else ()))
    return Run(folder, "train", game, "--out", folder / "run", *SMALL, *saves, *words, **more)


Begin = Callable[..., Run]
"""The fixture that begins one; its words, and ``make`` if it is not `train`."""


def hit(run: Run, how: str, whom: str) -> dict[str, Any]:
    """Have a process hit; return its event "lost" once it is back."""
    before, back = len(run.events("lost")), len(run.events("back"))
    run.learn_on()  # all of them have made steps
    run.order(how, whom)
    run.wait(lambda: len(run.events("back")) > back)
    told = run.events("hit")[-1]
    lost = run.events("lost")[before]
    assert (told["kind"] in (whom, "worker"), told["signal"]) == (True, how)
    assert [lost[key] for key in ("what", "process", "host")] == [
        told[key] for key in ("what", "process", "host")
    ]
    run.wait(lambda: not psutil.pid_exists(lost["process"]))  # frozen ones too
    assert lost["what"] in [event["what"] for event in run.events("back")[back:]]
    return lost


def stop(run: Run) -> Agent:
    """Wait until the run has gone on after what befell it, and stop it; return its agent."""
    run.learn_on()
    code, out, _ = run.interrupt()
    summary = json.loads(out)  # one object, and nothing else on stdout
    assert (code, summary["stopped"]) == (130, "Ctrl-C")
    # by itself it is the best one, where the newest is worse by more than chance
    assert load(run.path, checkpoint="last").checkpoint.steps == summary["steps"]
    return load(run.path)


@contextlib.contextmanager
def nothing_left() -> Iterator[dict[str, str]]:
    """Yield variables that give a run's own Ray another folder; in the end it must be empty.

    Nor may anything be left in the shared memory, where other runs have theirs.
    """
    shared = set(os.listdir("/dev/shm"))
    # The path is short, as there will be sockets below it.
    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield {"RAY_TMPDIR": folder}
        left = set(os.listdir("/dev/shm")) - shared
        wait_while(lambda: [*left.intersection(os.listdir("/dev/shm")), *os.listdir(folder)])


def wait_while(left: Callable[[], object]) -> None:
    """Wait until nothing is left; a failure tells what is."""
    until = time.monotonic() + LONG
    while what := left():
        assert time.monotonic() < until, what
        time.sleep(0.2)


class Head(NamedTuple):
    """A Ray cluster that is there already."""

    address: str
    env: dict[str, str]  # what a driver has to know
    process: subprocess.Popen[bytes]

    def actors(self) -> list[str]:
        """Return the actors that it runs."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        found = re.compile(r"ray::Process\b")
        return [name for p in family if found.match(name := running(p))]

    def empty(self) -> bool:
        """Say whether it runs no actors, or soon none: an ended run's take a moment."""
        until = time.monotonic() + LONG
        while self.actors() and time.monotonic() < until:
            time.sleep(0.1)
        return not self.actors()


def ray_start(
    words: str, env: Mapping[str, str], said: int | TextIO = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Run ``ray start`` in the foreground; what it says goes into a file, or nowhere."""
    usual = "start --block --object-store-memory 100000000 --disable-usage-stats"
    return subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *usual.split(), *words.split()],
        env=variables() | dict(env),
        stdout=said,
        stderr=subprocess.STDOUT,
    )


@contextlib.contextmanager
def node(of: Head, name: str, cpus: int) -> Iterator[None]:
    """Add a host of a name to a cluster, on this machine, and end it."""
    process = ray_start(f"--address {of.address} --node-name {name} --num-cpus {cpus}", of.env)
    try:
        yield
    finally:
        end_with_its_own(process)


def end_with_its_own(process: subprocess.Popen[bytes]) -> None:
    """End a process, with which all that it has started has to end."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.wait(LONG)
    _, left = psutil.wait_procs(family, timeout=LONG)
    assert not any(map(running, left))


def start_head(
    words: str, env: Mapping[str, str], said: Path
) -> tuple[int, subprocess.Popen[bytes]]:
    """Start ``ray start --head`` on a free port; what it says goes into a file."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with said.open("w") as file:
        return port, ray_start(f"--head --port {port} {words}", env, file)


@contextlib.contextmanager
def head(cpus: int, env: Mapping[str, str] | None = None, more: str = "") -> Iterator[Head]:
    """Start ``ray start --head`` on a free port with a token of its own, and end it."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # short: there will be sockets in it
    token, said = folder / "token", folder / "said"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    words = f"--num-cpus {cpus} --temp-dir {folder} --include-dashboard false {more}"
    given = (words, secret | dict(env or {}), said)
    port, process = start_head(*given)
    try:
        until, tries = time.monotonic() + LONG, 2
        while "Ray runtime started" not in said.read_text():
            if process.poll() is not None and tries:  # another may have taken the port meanwhile
                tries -= 1
                port, process = start_head(*given)
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.2)
        yield Head(f"127.0.0.1:{port}", secret, process)
    finally:
        if process.poll() is None:  # else it could not even start, as it has said
            end_with_its_own(process)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begin a run (`train`, or `Run` itself); none outlives the test."""
    runs: list[Run] = []

    def begin(*words: object, make: Callable[..., Run] = train, **more: Any) -> Run:
        runs.append(make(tmp_path, *words, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


@pytest.fixture
def ray() -> Any:
    """Return Ray, which must not be imported before it is prepared."""
    prepare("")
    import ray

    return ray


@pytest.fixture
def remote(ray: Any) -> Any:
    """Return the module that knows the processes of a run, which imports Ray."""
    from colobus.runtime.ray import remote

    return remote


def imported(monkeypatch: pytest.MonkeyPatch, everywhere: bool, asks: bool = True) -> None:
    """Let Ray have been imported with these ports, and let it ask for tokens."""
    tokens = ModuleType("ray._private.authentication.authentication_utils")
    vars(tokens)["is_token_auth_enabled"] = lambda: asks
    monkeypatch.setitem(sys.modules, tokens.__name__, tokens)
    constants = ModuleType("ray._private.ray_constants")
    vars(constants)["ENABLE_RAY_CLUSTER"] = everywhere
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray._private.ray_constants", constants)
