"""What stands beside the code, the package as Python sees it, and what tests may read."""

from __future__ import annotations

import ast
import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import colobus
from colobus.cli.experiment_flags import resolve
from colobus.cli.show import imagined_start
from colobus.cli.train import Train
from colobus.runtime.groups import group_processes
from colobus.training.topology import make_graph
from helpers import laws
from helpers.launching import python
from helpers.ray_runs import variables

SOURCE = Path(colobus.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(text_of("pyproject.toml"))["project"]
    return found


def releases() -> list[tuple[Version, str]]:
    """Return (version, date) of each release in CHANGELOG.md, as they stand there."""
    found = re.findall(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"), re.M)
    return [(Version(version), date) for version, date in found]


FIELDS = "abstract authors cff-version date-released keywords license message title type version"
"""The fields of the Citation File Format 1.2.0 that are used here; most of them are texts."""


def test_the_citation_is_of_the_newest_release() -> None:
    citation = yaml.safe_load(text_of("CITATION.cff"))
    others = {"authors": list, "date-released": datetime.date, "keywords": list}
    assert sorted(citation) == FIELDS.split()
    for name, value in citation.items():
        assert isinstance(value, others.get(name, str)), name
        assert value, name
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["license"] == project()["license"]
    assert citation["authors"] == project()["authors"]  # each {"name": ...}: an entity
    assert all(isinstance(word, str) for word in citation["keywords"])
    newest = (Version(citation["version"]), citation["date-released"].isoformat())
    assert newest == releases()[0]


def test_changes_are_in_order() -> None:
    headings = re.findall(r"^## (.*)$", text_of("CHANGELOG.md"), re.M)
    assert headings[0] == "[Unreleased]"
    assert len(headings) == 1 + len(releases())
    versions = [version for version, _ in releases()]
    assert all(newer > older for newer, older in pairwise(versions))
    parts = set(re.findall(r"^### (.*)$", text_of("CHANGELOG.md"), re.M))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert Version(colobus.__version__) >= versions[0]


def test_the_reference_has_every_public_name_once() -> None:
    names = re.findall(r"^\.\. auto\w+:: colobus\.(\w+)$", text_of("docs/site/reference.md"), re.M)
    assert sorted([*names, "__version__"]) == sorted(colobus.__all__)


def test_every_extra_is_on_the_page_about_installing() -> None:
    extras = re.findall(r"^\| `pip install '\.\[(\w+)\]'`", text_of("docs/install.md"), re.M)
    assert sorted(extras) == sorted(project()["optional-dependencies"])


@pytest.mark.processes
def test_the_container_is_made_of_what_is_there() -> None:
    text = text_of("Containerfile").replace("\\\n", " ")
    lines = re.findall(r"^COPY (?!--from)(.*)$", text, re.M)
    copied = {word for line in lines for word in line.split()[:-1]}
    assert {"pyproject.toml", "src", "constraints.txt"} <= copied
    let_in = {line[1:] for line in text_of(".containerignore").splitlines() if line[:1] == "!"}
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    needed = {project()["readme"], *project()["license-files"]}
    assert needed <= copied  # the wheel cannot be built without them
    pythons = re.findall(r"^FROM \S*python:([\d.]+)", text, re.M)
    assert len(pythons) == 2
    assert all(version in SpecifierSet(project()["requires-python"]) for version in pythons)
    (wheel,) = re.findall(r"/tmp/wheels/(\w+)-\*\.whl", text)
    assert wheel == project()["name"].replace("-", "_")
    extras = {extra for words in re.findall(r"EXTRAS=([\w,]+)", text) for extra in words.split(",")}
    assert {"page", "jobs"} <= extras <= set(project()["optional-dependencies"])
    for line in re.findall(r"^RUN (.*)$", text, re.M):
        subprocess.run(["sh", "-n", "-c", line], check=True)
    assert re.search(r"\*jobs\*\).*install.* wget ", text)  # with which Kubernetes asks
    (command,) = re.findall(r'^ENTRYPOINT \["([^"]+)"\]$', text, re.M)
    assert command in project()["scripts"]


def test_the_automatic_checks_are_targets_that_contributors_are_told() -> None:
    rules = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    run = text_of(".ci/run")
    (targets,) = re.findall(r"^for target in (.*); do$", run, re.M)
    checked = {*targets.split(), *re.findall(r"^stage (\S+).* &$", run, re.M)}
    assert {"test", "package", "docs", "test-cluster", "test-browser"} == checked <= rules
    told = set(re.findall(r"^make (\S+)", text_of("CONTRIBUTING.md"), re.M))
    assert told == checked | {"setup", "check", "test-long"}
    hooks = yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert {word for hook in hooks for word in hook["entry"].split()[1:]} <= rules
    (phony,) = re.findall(r"^\.PHONY: (help .*)$", text_of("Makefile").replace("\\\n", ""), re.M)
    assert set(phony.split()) == rules


@pytest.mark.processes
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_tests_fail_if_they_are_asked_for() -> None:
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-x", "tests/runtime/test_gpu.py"]
    asked = {**os.environ, "COLOBUS_TEST_GPU": "1"}
    done = subprocess.run(words, cwd=ROOT, env=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no CUDA device" in done.stdout
    recipe = (ROOT / "Makefile").read_text().partition("test-gpu: setup\n\t")[2].splitlines()[0]
    assert recipe == "COLOBUS_TEST_GPU=1 $(BIN)/python -m pytest -m gpu"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("code", [0, 7])
def test_what_pip_says_is_in_a_file_and_shown_after_a_failure(code: int, tmp_path: Path) -> None:
    """With a stand-in for the environment's Python, whose last installation may fail."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text(text_of(name))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "a flood $*"\ncase "$*" in *--group*) exit {code};; esac\n')
    python.chmod(0o755)
    done = subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode != 0) == (code != 0)
    assert ("a flood" in done.stdout) == (code != 0)
    assert "installing torch into .venv; it is large (log: .venv/install.log)\n" in done.stdout
    assert (tmp_path / ".venv" / "install.log").read_text().startswith("a flood -m pip install")
    assert (tmp_path / ".venv" / ".installed").exists() == (code == 0)


TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def breaches(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """Return what a value has that the schema of a Kubernetes resource does not allow."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, int | str) else [f"{where}: no number or text"]
    kind = TYPES.get(schema.get("type", ""), object)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return [f"{where}: {value!r} is no {schema['type']}"]
    found = [f"{where}: {value!r}"] if value not in schema.get("enum", [value]) else []
    if isinstance(value, list):
        for number, one in enumerate(value):
            found += breaches(one, schema["items"], f"{where}[{number}]")
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        missing = set(schema.get("required", ())) - set(value)
        found += [f"{where}: {name} is missing" for name in sorted(missing)]
        for name, one in value.items() if known or others else ():  # else it takes any object
            rule = known.get(name, others)
            inner = f"{where}.{name}"
            found += breaches(one, rule, inner) if rule else [f"{inner} is unknown"]
    return found


def bytes_of(text: str) -> float:
    """Return the bytes of a size such as 2Gi."""
    return float(text.removesuffix("Gi")) * 2**30


def test_kuberay_takes_the_job_and_would_not_take_mistakes() -> None:
    """Of its schema there is, of pods, only what is usual."""
    schema = json.loads(text_of("tests/data/kuberay/rayjob-1.7.0.json"))["schema"]
    _, job = yaml.safe_load_all(text_of("deploy/rayjob.yaml"))
    assert breaches(job, schema) == []
    cluster = job["spec"]["rayClusterSpec"]
    cluster["authOptions"]["mode"] = "tokens"
    cluster["workerGroupSpecs"][0]["minReplicas"] = "4"
    cluster["headGroupSpec"]["templates"] = cluster["headGroupSpec"].pop("template")
    del cluster["workerGroupSpecs"][0]["groupName"]
    found = breaches(job, schema)
    assert len(found) == 5, found
    wrong = ["'tokens'", "'4' is no integer", "templates is unknown", "template is missing"]
    for what in (*wrong, "groupName is missing"):
        assert any(what in one for one in found)


def test_the_job_is_a_run_that_goes_on_and_has_room() -> None:
    volume, job = yaml.safe_load_all(text_of("deploy/rayjob.yaml"))
    cluster = job["spec"]["rayClusterSpec"]
    program, command, *words = job["spec"]["entrypoint"].split()
    assert (program, command) == ("colobus", "train")
    wanted = resolve(Train, "train", words)
    assert wanted.flags.resume_or_start
    assert job["spec"]["backoffLimit"] > 0
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in head["volumeMounts"]}
    assert wanted.flags.out.is_relative_to(places["runs"])
    claims = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert claims[0]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    (group,) = cluster["workerGroupSpecs"]
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
    (worker,) = group["template"]["spec"]["containers"]
    for one in (cluster["headGroupSpec"], group):  # Ray's object store is as large as it says
        pod = one["template"]["spec"]
        limit = bytes_of(pod["containers"][0]["resources"]["limits"]["memory"])
        store = int(one["rayStartParams"].get("object-store-memory", 0.3 * limit))
        (shm,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
        assert store <= bytes_of(shm["emptyDir"]["sizeLimit"])
    room = group["replicas"] * int(worker["resources"]["limits"]["cpu"])
    experiment = wanted.experiment
    specs = group_processes(make_graph(experiment, imagined_start(experiment), None), 1)
    assert sum(spec.kind == "worker" for spec in specs) <= room
    pinned = re.search(r"^ray==(.*)$", text_of("constraints.txt"), re.M)
    assert pinned is not None
    assert pinned[1] == cluster["rayVersion"]
    for container in (head, worker):
        assert container["image"] == "REGISTRY/colobus"
        assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]


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
def test_few_tests_and_no_benchmarks_and_examples_read_what_is_private(tmp_path: Path) -> None:
    files = [[*(ROOT / name).rglob("*.py")] for name in ("benchmarks", "examples", "tests")]
    assert min(map(len, files)) > 3
    found = {str(file.relative_to(ROOT)): private_reads(file) for own in files for file in own}
    assert {file for file, names in found.items() if names} == set(PRIVATE_IN_TESTS)
    some = tmp_path / "some.py"  # with the forms that are in none of those
    some.write_text("from colobus.a import _b, c\ngetattr(c, '_f')\nc._d = c._replace()\n")
    assert private_reads(some) == {"_b", "_d", "_f"}


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
    assert len(files) <= laws.laws_of()["executed"]


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
    source = laws.Source(tmp_path)
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
    assert [line.partition(": ")[0] for line in laws.breaches(source, budgets)] == [
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
