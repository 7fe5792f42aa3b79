"""The package as Python sees it, what its import and its runs do, and what tests may read."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import colobus
from helpers.launching import python
from helpers.laws import Source, breaches, laws_of
from helpers.ray_runs import variables

SOURCE = Path(colobus.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
]


def test_every_name_is_there_typed_and_completed() -> None:
    """Type checkers see it in a block that Python passes over."""
    tree = ast.parse(Path(colobus.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if str(node.module).startswith("colobus.")]
    typed = {alias.name: str(node.module) for node in own for alias in node.names}
    assert sorted(colobus.__all__) == sorted([*typed, "__version__"])
    assert dir(colobus) == sorted(colobus.__all__)
    homes = {name: home for home, names in colobus._HOME.items() for name in names.split()}
    assert {name: f"colobus.{home}" for name, home in homes.items()} == typed
    for name, module in typed.items():
        value = getattr(colobus, name)
        assert value.__doc__, name
        assert getattr(value, "__module__", module).startswith("colobus."), name
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, colobus.ColobusError) or name == "StopTraining"
        assert vars(colobus)[name] is value  # the second time it is found at once


PRIVATE_IN_TESTS = {
    "tests/benchmarks/test_stubs.py": "how often a network is asked, which nothing else tells",
    "tests/roles/replay/test_buffer.py": "the bytes that a buffer takes, by its arrays",
    "tests/roles/replay/test_minibatch_buffer.py": "how many batches are held",
    "tests/roles/test_on_device.py": "what a learner has found out about its last round",
    "tests/roles/test_allreduce.py": "the sums on GPUs, which the test replaces",
    "tests/runtime/test_threads.py": "the pauses between restarts, of this runtime alone",
    "tests/training/test_saving.py": "how often a disk was tried before the end of the patience",
    "tests/runtime/test_ray_silent.py": "a runtime without a cluster, whose processes lose a GPU",
    "tests/helpers/schedules.py": "gradients that wait are as they were",
    "tests/helpers/tapes.py": "of torch: operations as they are called",
}
"""Files of tests that read private attributes of the package, and why there is no other way."""


def private_reads(path: Path) -> set[str]:
    """Return the private names of others that a file with imports of colobus uses.

    Private names of the file's own classes and the methods that named tuples and
    notebooks ask for are no others'.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own: set[str] = set()
    used: set[str] = set()
    imports = False
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names):
                imports |= str(module).startswith("colobus")
                used |= {alias.name for alias in names}
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.FunctionDef(name=name):
                own.add(name)
            case ast.Call(
                func=ast.Name("getattr" | "setattr") | ast.Attribute(attr="setattr" | "object"),
                args=[_, ast.Constant(str(name)), *_],
            ):
                used.add(name)
    others = {"_replace", "_asdict", "_fields", "_make", "_repr_html_"}
    found = {name for name in used if re.match(r"_[a-z]", name)}
    return found - own - others if imports else set()


@pytest.mark.slow
def test_few_tests_and_no_benchmarks_and_examples_read_what_is_private() -> None:
    folders = [ROOT / name for name in ("benchmarks", "examples", "tests")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    found = {str(file.relative_to(ROOT)): private_reads(file) for file in files}
    assert {file for file, names in found.items() if names} == set(PRIVATE_IN_TESTS)
    assert len(files) > 100


def test_no_program_of_the_tests_hides_a_module_of_python() -> None:
    # Some are started as programs, and then Python looks for modules in their folder first.
    names = {path.stem for path in (ROOT / "tests" / "helpers").iterdir()}
    assert names & sys.stdlib_module_names == set()


UNPICKLES = r"\b(pickle|cloudpickle|dill|marshal|shelve|joblib)\b|torch\.load\b|allow_pickle"
"""What runs code that stands in a file."""


def test_nothing_that_comes_from_disk_is_unpickled() -> None:
    assert re.search(UNPICKLES, "import cloudpickle")
    found = [
        f"{path}: {line}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(UNPICKLES, line.partition("#")[0])
    ]
    assert found == []


@pytest.mark.processes
def test_an_import_loads_nothing_heavy_and_changes_nothing(tmp_path: Path) -> None:
    optional = "colobus.runtime.ray"  # needs Ray, which sets variables of the environment
    names = [name for name in MODULES if not f"{name}.".startswith(f"{optional}.")]
    script = f"""
import os, sys
variables = dict(os.environ)
import colobus
heavy = {{'torch', 'numpy', 'ale_py', 'cv2', 'matplotlib', 'gymnasium', 'rich', 'tyro'}}
heavy.add('typing')  # it would be most of the time of the import
print(sorted(heavy & set(sys.modules)), variables == dict(os.environ))
import threading
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
    assert python("-c", script, folder=tmp_path) == "[] True\nTrue ['MainThread'] []\n"


COUNT_THREADS = """
import os, threading, time
from pathlib import Path
import torch
from colobus.runtime.threads import Threads
from colobus.training.topology import make_graph
from colobus.training.start import begin
from conftest import short_pong

def tasks():
    return len(os.listdir("/proc/self/task"))

def counting(step):  # looks from inside each role's own thread
    def counted():
        step()
        torch_threads[threading.current_thread().name] = torch.get_num_threads()
    return counted

experiment = short_pong(1000)
torch.set_num_threads(1)  # as `train` does
start = begin(experiment)
for _ in range(6000):  # a thread that was joined may take a moment to leave /proc
    if (bare := tasks()) == 1:
        break
    time.sleep(0.01)
runtime = Threads(make_graph(experiment, start, Path.cwd()).build())
torch_threads, most = {}, 0
for role in runtime.active:
    role.step = counting(role.step)
runtime.start()
while runtime.roles["learner-0"].clock.steps < 8:
    runtime.wait(0.01)
    runtime.check()
    most = max(most, tasks())
most = max(most, tasks())  # also if eight rounds were over before the first look
python = sorted(t.name for t in threading.enumerate())
runtime.stop()
print(bare, most, sorted(torch_threads.items()), python)
"""


@pytest.mark.processes
def test_a_run_has_the_threads_of_its_plan_and_no_more(tmp_path: Path) -> None:
    """Real Pong: 3 active roles, 2 emulator threads (one for each actor), writer, main.

    Four threads are offered to every thread's torch: one that forgets to refuse them shows as
    three more.
    """
    offered = {"PYTHONPATH": variables()["PYTHONPATH"], "OPENBLAS_NUM_THREADS": "1"}
    offered |= {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    printed = python("-c", COUNT_THREADS, folder=tmp_path, **offered).strip()
    bare, most = map(int, printed.split(" ", 2)[:2])
    assert bare == 1  # main, before the roles start
    active = ["actor-0", "actor-1", "learner-0"]
    want = f"{sorted((name, 1) for name in active)} {sorted([*active, 'MainThread', 'writer'])}"
    assert printed.split(" ", 2)[2] == want
    emulators, writer = 2, 1
    assert most == bare + len(active) + emulators + writer


EXECUTED = """
import sys, threading
from pathlib import Path

files = set()

def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>":  # functions, and bodies of classes
        files.add(frame.f_code.co_filename)

threading.setprofile(note)
sys.setprofile(note)
from colobus.cli.main import run
code = run(sys.argv[1:])
sys.setprofile(None)
import colobus
print(*(file for file in sorted(files) if Path(colobus.__file__).parent in Path(file).parents))
sys.exit(code)
"""


@pytest.mark.processes
def test_a_run_of_ppo_executes_few_files(tmp_path: Path) -> None:
    words = ("train", "ppo-catch", "--steps", "3000", "--no-finish", "--out", tmp_path / "run")
    files = python("-c", EXECUTED, *words).splitlines()[-1].split()
    assert str(SOURCE / "roles" / "actor.py") in files
    assert len(files) <= laws_of()["executed"]


LONG_ENOUGH = "\n" * 60

FILES = {
    "roles/actor.py": f"import colobus.runs.folder\n\nclass Run:\n    of = lone\n{LONG_ENOUGH}",
    "runs/folder.py": f'class Run:\n    file = "eval/config.json"\n{LONG_ENOUGH}',
    "runs/actor.py": (
        'Run\nfrom colobus.roles.actor import Run\nIN_TABLE = "colobus.nets.net:Net"\n'
    ),
    "nets/net.py": 'class Net:\n    """Of config.json."""\n',
    "nets/file.py": "import colobus.nets.net\n\ndef lone(): 'config.json'\n\ndef used(): used\n",
}


def test_each_law_is_broken_and_each_exception_counts(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    source = Source(tmp_path)
    assert dict(source.rooms) == {"roles": 64, "runs": 65, "nets": 7}
    budgets = {
        "lines": 135,
        "files": 4,
        "file": 63,
        "rooms": {"roles": 64, "runs": 64, "cli": 3},
        "small": {"nets/net.py": "one", "nets/none.py": "is not there"},
        "twice": {"Run": "reason"},
        "unused": {},
        "spelt": {},
    }
    assert [line.partition(": ")[0] for line in breaches(source, budgets)] == [
        "src has 136 lines of Python, and 135 are allowed",
        "src has 5 files, and 4 are allowed",
        "nets has 7 lines, and its budget is 0",
        "runs has 65 lines, and its budget is 64",
        "roles/actor.py has 64 lines, and 63 are allowed",
        "nets/file.py has fewer than 60 lines and fewer than two importers",
        "runs/actor.py has fewer than 60 lines and fewer than two importers",
        "nets/none.py is no exception any more",
        "actor.py is the name of two files or of two public classes",
        "nets/file.py names a file of a run",
    ]
