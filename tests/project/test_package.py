"""The wheel and the sdist that ``make package`` has built: what is in them, and that they work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

import colobus

pytestmark = pytest.mark.package

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "colobus"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def built(pattern: str) -> Path:
    """Return the one file in dist that has such a name."""
    found = list((ROOT / "dist").glob(pattern))
    assert len(found) == 1, f"{found}; make package builds it"
    return found[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an environment ``env`` that has the wheel.

    All other packages are those that are installed here: their folder is on the path, but its own
    .pth files, one of which leads to the checkout, are not read there.
    """
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    words = ["install", "--quiet", "--no-deps", "--no-index", str(built("*.whl"))]
    subprocess.run([*pip, *words], check=True, env=ENVIRONMENT)
    (own,) = (folder / "env" / "lib").glob("python*/site-packages")
    (own / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(home: Path, *words: object) -> str:
    """Run a program of the environment in ``home``; return what it printed."""
    program, *rest = map(str, words)
    command = [str(home / "env" / "bin" / program), *rest]
    done = subprocess.run(
        command, cwd=home, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_the_package_and_its_metadata_and_nothing_else() -> None:
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    wanted = {path.relative_to(SOURCE.parent).as_posix() for path in files}
    folder = f"colobus-{colobus.__version__}.dist-info"
    with zipfile.ZipFile(built("*.whl")) as wheel:
        names = set(wheel.namelist())
        about = BytesParser().parsebytes(wheel.read(f"{folder}/METADATA"))
    own = {name for name in names if name.startswith("colobus/")}
    assert own == wanted
    assert {name.split("/")[0] for name in names - own} == {folder}
    assert built("*.whl").stat().st_size < 2**20
    assert (about["Name"], about["Version"]) == ("colobus", colobus.__version__)
    assert about["Author"] == "The Colobus authors"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert about["Description-Content-Type"] == "text/markdown"
    assert "reinforcement learning" in about["Keywords"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(about.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert "Typing :: Typed" in about.get_all("Classifier", [])
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    body = about.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert body.decode().strip() == text.strip()


def test_the_sdist_has_files_of_the_project_without_logs() -> None:
    with tarfile.open(built("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True
    )
    tracked = set(listed.stdout.splitlines())
    assert names - tracked == {"PKG-INFO"}
    left_out = {name for name in tracked - names if not name.startswith(".")}
    assert left_out
    assert all(name.startswith(("benchmarks/results/logs/", "zoo/")) for name in left_out)


def test_the_files_of_the_container_make_the_same_wheel(tmp_path: Path) -> None:
    containerfile = (ROOT / "Containerfile").read_text(encoding="utf-8")
    build = containerfile.partition("\nRUN ")[0]  # before the wheel is made
    for line in re.findall(r"^COPY (.*)$", build, re.M):
        *names, to = line.split()
        for name in names:
            if to == "./":
                shutil.copy(ROOT / name, tmp_path)
            else:
                shutil.copytree(ROOT / name, tmp_path / to)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    words = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", "wheels", "."]
    subprocess.run([*pip, *words], cwd=tmp_path, env=ENVIRONMENT, check=True)
    (made,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(made) as one, zipfile.ZipFile(built("*.whl")) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_the_checkout_is_out_of_reach(home: Path) -> None:
    script = (
        "import importlib.util, json, sys, colobus;"
        "found = [n for n in ('cells', 'conftest', 'helpers') if importlib.util.find_spec(n)];"
        "print(json.dumps([colobus.__file__, found, sys.path]))"
    )
    file, found, path = json.loads(run(home, "python", "-c", script))
    assert Path(file).is_relative_to(home)
    assert found == []
    assert not {str(ROOT), str(SOURCE.parent)} & set(path)
    assert run(home, "colobus", "--version") == f"colobus {colobus.__version__}\n"


def test_the_installed_program_trains_evaluates_and_reports(home: Path) -> None:
    run(home, "colobus", "train", "catch", "--steps", 20_000, "--out", "runs/catch")
    assert (home / "runs" / "catch" / "curve.png").stat().st_size > 1000
    played = json.loads(run(home, "colobus", "eval", "runs/catch", "--episodes", 7, "--json"))
    assert len(played["scores"]) == 7
    run(home, "colobus", "report", "runs", "--out", "report.html")
    assert "<svg" in (home / "report.html").read_text(encoding="utf-8")
