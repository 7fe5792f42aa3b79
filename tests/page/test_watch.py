"""``gelada watch`` and ``gelada report`` as people start them."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from gelada.cli.main import run
from helpers.launching import gelada
from helpers.made_runs import evaluate, make_run, rising


@pytest.mark.processes
def test_watch_prints_a_link_that_only_this_machine_can_open(tmp_path: Path) -> None:
    make_run(tmp_path / "pong-1", rising(5))
    command = [sys.executable, "-m", "gelada.cli.main", "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.fullmatch(
            r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", process.stdout.readline().strip()
        )
        assert match
        page = HTTPConnection("127.0.0.1", int(match[1]))
        page.request("GET", f"/look?token={match[2]}")
        assert b"pong-1" in page.getresponse().read()
        page.request("GET", "/look?token=wrong")
        assert page.getresponse().status == 403
        page.close()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "config.json",
        "metrics.jsonl",
        "pong-1",
    ]


def test_mistakes_of_watch_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gelada.cli.watch.lower_priority", lambda by: None)  # stays with pytest
    assert run(["watch", str(tmp_path / "nothing")]) == 2
    assert "is no folder" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["watch", str(tmp_path), "--port", str(port)]) == 2
    assert f"--port {port}: cannot listen there" in capsys.readouterr().err


def test_without_its_packages_watch_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "gelada.page.server", raising=False)
    assert run(["watch", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "pip install 'gelada-rl[page]'" in said
    assert said.count("\n") == 1


@pytest.mark.processes
def test_the_page_needs_no_torch() -> None:
    script = (
        "import sys, gelada.page.server, gelada.page.view;"
        "print({'torch', 'matplotlib', 'numpy', 'ale_py', 'cv2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_report_is_written(tmp_path: Path) -> None:
    for seed in (1, 2):
        evaluate(make_run(tmp_path / f"pong-{seed}", rising(9), seed=seed), 9000, [1.0, 2.0])
    code, out, err = gelada(
        "report", tmp_path, "--out", tmp_path / "r.html", "--csv", tmp_path / "r.csv"
    )
    assert code == 0, err
    assert "2 runs of 1 game\n" in out
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "r.csv").read_text().count("\n") == 3
    assert run(["report", str(tmp_path), "--out", str(tmp_path / "r.md")]) == 0
    assert (tmp_path / "r.md").read_text().startswith("# Report: pong\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which runs?"),
        (["{folder}", "--out", "r.pdf"], "must end in .html or .md"),
        (["{folder}", "--out", "{folder}/no/r.html"], "there is no folder"),
        (["{folder}"], "no run there"),
        (["{folder}", "--protocol", "nop"], "unknown protocol 'nop': nearest known: noop"),
    ],
)
def test_mistakes_of_report_are_one_line(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *(word.format(folder=tmp_path) for word in words)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
