"""What never imports what, what happens at import time, and who may start threads.

The laws of imports are kept by reading every file, so a law holds for code that no test runs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gelada

SOURCE = Path(gelada.__file__).parent
MODULES = {
    ".".join(("gelada", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in SOURCE.rglob("*.py")
}
GENERAL = "gelada.algorithms.api"  # the protocol, and the package itself
ACTIVE_AND_ALL = ("actor", "learner", "evaluator", "recorder")
PASSIVE = ("replay", "store", "parameter_server", "tracker")


def imports_of(path: Path, name: str) -> set[str]:
    """Return every module a file imports, at its top or anywhere in it, by full name."""
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - max(node.level - 1, 0)]
            base = ".".join(parts) if node.level else ""
            module = ".".join(p for p in (base, node.module or "") if p)
            found.add(module)
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


IMPORTS = {name: imports_of(path, name) for name, path in MODULES.items()}


def within(name: str, *packages: str) -> bool:
    return any(name == p or name.startswith(p + ".") for p in packages)


def breaches(who: tuple[str, ...], never: tuple[str, ...], but: tuple[str, ...] = ()) -> list[str]:
    """Return "module imports name" for each import of ``never`` (``but`` some) by ``who``."""
    return [
        f"{module} imports {name}"
        for module, names in sorted(IMPORTS.items())
        if within(module, *who)
        for name in sorted(names)
        if within(name, *never) and not within(name, *but) and name not in ("gelada",)
    ]


def test_the_reader_of_imports_reads_all_forms(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "import a.b\nfrom c import d as e\ndef f():\n    from . import g\n    from ..h import i\n"
    )
    found = imports_of(file, "x.y.some")
    assert found == {"a.b", "c", "c.d", "x.y", "x.y.g", "x.h", "x.h.i"}


def test_the_house_is_found() -> None:
    for name in ("run", "types", "ops.flat", "nets.network", "roles.actor", "place.threads"):
        assert f"gelada.{name}" in MODULES


@pytest.mark.parametrize("who", ["ops", "nets", "types"])
def test_ops_nets_and_types_know_no_roles_and_nothing_above(who: str) -> None:
    above = tuple(f"gelada.{m}" for m in ("roles", "place", "algorithms", "run", "presets", "cli"))
    assert breaches((f"gelada.{who}",), above) == []


def test_of_environments_nets_know_only_how_frames_stack() -> None:
    assert breaches(("gelada.nets",), ("gelada.envs",), but=("gelada.nets.observations",)) == [
        f"{module} imports gelada.envs"
        for module in sorted(IMPORTS)
        if within(module, "gelada.nets") and "gelada.envs" in IMPORTS[module]
    ]
    assert breaches(("gelada.ops", "gelada.core.types"), ("gelada.envs", "gelada.nets")) == []


def test_algorithms_know_no_roles_places_environments_or_one_another() -> None:
    others = (
        "gelada.roles",
        "gelada.runtime",
        "gelada.envs",
        "gelada.training.run",
        "gelada.training.presets",
    )
    assert breaches(("gelada.algorithms",), others) == []
    for module in MODULES:
        if within(module, "gelada.algorithms"):
            assert breaches((module,), ("gelada.algorithms",), but=(GENERAL,)) == []


def test_roles_know_no_concrete_algorithm_and_no_place() -> None:
    assert (
        breaches(
            ("gelada.roles",), ("gelada.runtime", "gelada.training.run", "gelada.training.presets")
        )
        == []
    )
    assert breaches(("gelada.roles",), ("gelada.algorithms",), but=(GENERAL,)) == []


def test_passive_roles_call_nobody() -> None:
    passive = tuple(f"gelada.roles.{m}" for m in PASSIVE)
    others = tuple(f"gelada.roles.{m}" for m in ACTIVE_AND_ALL)
    for role in passive:
        assert breaches((role,), (*others, *(p for p in passive if p != role))) == []


def test_what_passive_roles_are_made_of_knows_no_role_at_all() -> None:
    roles = tuple(f"gelada.roles.{m}" for m in (*PASSIVE, *ACTIVE_AND_ALL))
    for part in ("snapshots", "admission", "clock"):
        assert f"gelada.roles.{part}" in MODULES
        assert breaches((f"gelada.roles.{part}",), roles) == []


def test_trouble_is_known_only_where_runs_are_drawn() -> None:
    known = {
        m for m, names in IMPORTS.items() if any(within(n, "gelada.training.faults") for n in names)
    }
    assert known <= {
        "gelada.training.run",
        "gelada.training.topology",
        "gelada.cli.train",
        "gelada.cli.show",
    }


@pytest.mark.parametrize(
    ("library", "home"),
    [
        ("ray", "gelada.runtime.ray"),
        ("ale_py", "gelada.envs"),
        ("gymnasium", "gelada.envs"),
        ("cv2", "gelada.envs"),
        ("tensorboardX", "gelada.roles.tracker"),
        ("wandb", "gelada.roles.tracker"),
    ],
)
def test_each_library_has_one_home(library: str, home: str) -> None:
    strangers = [
        module
        for module, names in IMPORTS.items()
        if any(within(name, library) for name in names) and not within(module, home)
    ]
    assert strangers == []


def fresh(script: str, folder: Path, **environment: str) -> str:
    """Run a script in a new process in ``folder``; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_gelada_loads_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys, gelada\n"
        "heavy = {'torch', 'numpy', 'ale_py', 'cv2', 'matplotlib', 'gymnasium', 'rich', 'tyro'}\n"
        "print(sorted(heavy & set(sys.modules)), gelada.__version__)"
    )
    assert fresh(script, tmp_path) == f"[] {gelada.__version__}"


def test_nothing_happens_at_import_time(tmp_path: Path) -> None:
    optional = "gelada.runtime.ray"  # needs Ray, which sets variables of the environment
    names = sorted(name for name in MODULES if not within(name, optional))
    script = f"""
import os, sys, threading
import numpy as np, torch, matplotlib, rich, tyro, av, ale_py, cv2
before = (torch.get_num_threads(), torch.get_rng_state().sum(), np.random.get_state()[1].sum(),
          torch.is_grad_enabled(), dict(os.environ))
import importlib
for name in {names!r}:
    importlib.import_module(name)
after = (torch.get_num_threads(), torch.get_rng_state().sum(), np.random.get_state()[1].sum(),
         torch.is_grad_enabled(), dict(os.environ))
print(before == after, [t.name for t in threading.enumerate()], os.listdir('.'))
"""
    assert fresh(script, tmp_path) == "True ['MainThread'] []"


COUNT_THREADS = """
import os, threading, time
from dataclasses import replace
from pathlib import Path
import torch
from gelada.runtime.threads import Threads
from gelada.training.experiment import Experiment, Shape
from gelada.nets.network import NetworkSettings
from gelada.roles.tracker import TrackerSettings
from gelada.training.topology import draw
from gelada.training.start import begin

def tasks():
    return len(os.listdir("/proc/self/task"))

class Counting:  # looks from inside each role's own thread
    def __init__(self, role):
        self.role, self.inner = role, role.step
        role.step = self.step
    def step(self):
        self.inner()
        torch_threads[threading.current_thread().name] = torch.get_num_threads()

experiment = Experiment(
    network=NetworkSettings(precision="float32"),
    shape=Shape(actors=2, games=2, length=16, random_steps=64),
    tracker=TrackerSettings(tensorboard=False),
)
torch.set_num_threads(1)  # as `train` does
start = begin(experiment)
for _ in range(100):  # a thread that was joined may take a moment to leave /proc
    if (bare := tasks()) == 1:
        break
    time.sleep(0.01)
place = Threads(draw(experiment, start, Path.cwd()).build())
torch_threads, most = {}, 0
for role in place.active:
    Counting(role)
place.start()
while place.roles["learner-0"].clock.steps < 8:
    place.wait(0.01)
    place.check()
    most = max(most, tasks())
python = sorted(t.name for t in threading.enumerate())
place.stop()
print(bare, most, sorted(torch_threads.items()), python)
"""


def test_a_run_has_the_threads_of_its_plan_and_no_more(tmp_path: Path) -> None:
    """Real Pong: 3 active roles, 2 emulator threads (one for each actor), writer, main.

    Four threads are offered to every thread's torch: one that forgets to refuse them shows as
    three more.
    """
    printed = fresh(
        COUNT_THREADS, tmp_path, OMP_NUM_THREADS="4", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="4"
    )
    bare, most = map(int, printed.split(" ", 2)[:2])
    assert bare == 1  # main, before the roles are placed
    active = ["actor-0", "actor-1", "learner-0"]
    want = f"{sorted((name, 1) for name in active)} {sorted([*active, 'MainThread', 'writer'])}"
    assert printed.split(" ", 2)[2] == want
    emulators, writer = 2, 1
    assert most == bare + len(active) + emulators + writer
