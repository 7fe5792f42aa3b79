"""The laws of size and shape can be broken, and how many files a run executes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import colobus
from helpers.laws import Source, breaches, laws_of

FOLDER = Path(colobus.__file__).parent

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


def source_of(folder: Path, files: dict[str, str]) -> Source:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Source(folder)


def test_each_law_is_broken_and_each_exception_counts(tmp_path: Path) -> None:
    source = source_of(tmp_path, FILES)
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
    done = subprocess.run(
        [sys.executable, "-c", EXECUTED, *words], capture_output=True, text=True, check=True
    )
    files = done.stdout.splitlines()[-1].split()
    assert str(FOLDER / "roles" / "actor.py") in files
    assert len(files) <= laws_of()["executed"]
