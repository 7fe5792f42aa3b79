"""Other systems beside ours: what counts as a result, who runs when, and what a failure leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers import counting, known, matches, venvs
from gelada.cli.experiment_flags import resolve
from gelada.cli.train import Train
from gelada.experiment.check import check

PEERS = Path(peers.__file__).parent

GOOD = {"peer": "x", "version": "1", "steps": 900, "seconds": 3.0, "steps_per_s": 300.0}
GOOD |= {"command": "python x.py", "network": "n", "input": "i", "passes": 4}


def peer(script: Path, name: str = "x") -> Any:
    return known.Peer(name, name, str(script), (), "alike enough")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_enough_needs_seconds_and_counts() -> None:
    now = [0.0]
    counts = counting.Counts(10.0, clock=lambda: now[0])
    seen = []
    for seconds, steps in [
        (5, 0),
        (6, 0),
        (9, 10),
        (14, 20),
        (17, 30),
        (18, 40),
        (19, 40),
        (20, 50),
    ]:
        now[0] = float(seconds)
        seen.append(counts.see(steps))
    assert seen == [False] * 7 + [True]  # 10 s are over at 17, but with 4 counts only
    assert counts.points == [(5, 0), (9, 10), (14, 20), (17, 30), (18, 40), (20, 50)]


def test_the_steady_part_leaves_out_the_first_third_and_ends_with_the_last_count() -> None:
    points = [(100.0, 0), (101.0, 5_000), (103.0, 6_000), (106.0, 6_300), (110.0, 6_700)]
    assert counting.steady(points) == (700, 7.0)
    assert counting.steady(points).as_dict()["steps_per_s"] == 100.0


@pytest.mark.parametrize("points", [[], [(1.0, 5)], [(0.0, 1), (9.0, 5)], [(0, 1), (9, 5), (9, 5)]])
def test_too_few_counts_are_no_rate(points: list[tuple[float, int]]) -> None:
    with pytest.raises(ValueError, match="too short"):
        counting.steady(points)


def test_the_line_of_a_peer_is_a_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/run_x.py", "--game", "Pong"])
    about = {"peer": "x", "version": "1", "network": "n", "input": "i", "passes": 4}
    counting.report(counted([(0.0, 0), (3.0, 300), (10.0, 1_700)]), **about)
    line = matches.result_in("noise\n" + capsys.readouterr().out + "more noise\n")
    assert (line["steps"], line["seconds"], line["steps_per_s"]) == (1_400, 7.0, 200.0)
    assert line["command"] == "python run_x.py --game Pong"
    assert "score" not in line


def counted(points: Sequence[tuple[float, int]], score: float | None = None) -> Any:
    counts = counting.Counts(10.0, score)
    counts.points.extend(points)
    return counts


def test_a_score_ends_a_run_and_is_reported_with_the_curve() -> None:
    now = [100.0]
    counts = counting.Counts(3600.0, 18.0, lambda: now[0])
    few, many = [21.0] * 19, [-21.0] * 5 + [17.0] * 20
    assert not counts.see(0, few)  # 19 games are no mean
    for seconds, steps, returns, enough in [
        (105.0, 500, [], False),
        (110.0, 1_000, [-21.0] * 20, False),
        (140.0, 2_000, many, False),  # only the newest 20 count: 17
        (175.0, 3_000, [17.0] * 10 + [18.0] * 10, False),
        (180.0, 4_000, [17.0] * 10 + [19.0] * 10, True),
        (190.0, 5_000, [-21.0] * 20, True),  # it was reached, whatever follows
    ]:
        now[0] = seconds
        assert counts.see(steps, returns) is enough
    assert counts.about_score() == {
        "score": 18.0,
        "within": 3600.0,
        "reached": {"seconds": 80.0, "steps": 4_000},
        "last": -21.0,
        "curve": [[10.0, 1_000, -21.0], [75.0, 3_000, 17.5]],
    }


def test_a_score_that_is_not_reached_ends_with_the_time() -> None:
    now = [0.0]
    counts = counting.Counts(10.0, 18.0, lambda: now[0])
    for second in range(12):
        now[0] = float(second)
        enough = counts.see(second, [])
    assert enough
    told = counts.about_score()
    assert told == {
        "score": 18.0,
        "within": 10.0,
        "reached": {"seconds": None, "steps": None},
        "last": None,
        "curve": [],
    }
    assert peers.when({**told, "within": 3600.0}) == "not in 60 min (then None)"


def test_peers_are_trained_alone_until_they_have_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def run_theirs(python: str, own: Any, *asked: Any) -> dict[str, Any]:
        ran.append((own.name, *asked))
        if own.name == "sb3-a2c":
            raise venvs.Failed("run", "exit code 1: no memory")
        reached = {"seconds": 1_830.0, "steps": 900_000}
        last = {"version": "2", "steps_per_s": 500.0, "last": 18.2, "reached": reached}
        return {**last, "score": 18.0, "within": 3600.0}

    monkeypatch.setattr(peers, "BOOK", tmp_path / "peers.jsonl")
    monkeypatch.setattr(peers, "install", lambda venv: "python")
    monkeypatch.setattr(peers, "run_theirs", run_theirs)
    monkeypatch.setattr(peers, "learn_ours", None)  # was not asked for
    words = ["--peer", "sb3-a2c", "--peer", "sb3-ppo", "--score", "18"]
    assert peers.main(words) == 1
    assert ran == [(name, "own", "pong", 3600.0, 18.0) for name in ("sb3-a2c", "sb3-ppo")]
    assert "sb3-ppo score: 30.5 min, 900,000 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"steps_per_s": "fast"},
        {"steps_per_s": float("nan")},
        {"steps_per_s": 600.0},  # not steps / seconds
        {"steps": 0, "steps_per_s": 0.0},
        {"seconds": -3.0},
        {"version": None},
    ],
)
def test_a_line_that_does_not_fit_is_no_result(change: dict[str, Any]) -> None:
    line = {k: v for k, v in {**GOOD, **change}.items() if v is not None}
    with pytest.raises(venvs.Failed, match="no result; its last line"):
        matches.result_in(json.dumps(line))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("print('{\"steps_per_s\": 300}')", 'no result; its last line: {"steps_per_s": 300}'),
        ("print('Segmentation fault')", "no result; its last line: Segmentation fault"),
        ("pass", "no result; its last line: it said nothing"),
        (f"print('{json.dumps(GOOD)}'); raise SystemExit(3)", "exit code 3: {"),
        (f"print('{json.dumps(GOOD)}'); raise ValueError('no games')", "ValueError: no games"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_script_that_fails_reports_the_peer_and_no_figure(
    tmp_path: Path, body: str, line: str
) -> None:
    script = written(tmp_path / "script.py", body)
    with pytest.raises(venvs.Failed) as failed:
        matches.run_theirs(sys.executable, peer(script), "own", "pong", 1.0)
    assert failed.value.stage == "run"
    assert line in failed.value.line


def test_a_script_that_never_ends_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matches, "limit", lambda seconds: 6.0)
    child = tmp_path / "child"
    script = written(
        tmp_path / "script.py",
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n",
    )
    with pytest.raises(venvs.Failed, match="not over after 6 s"):
        matches.run_theirs(sys.executable, peer(script), "own", "pong", 1.0)
    assert is_gone(int(child.read_text()))


def test_sigterm_ends_what_was_started_too(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = written(
        tmp_path / "script.py",
        "import os, pathlib, time\n"
        f"pathlib.Path({str(child)!r}).write_text(str(os.getpid()) + '\\n')\n"
        "time.sleep(600)\n",
    )
    driver = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os, sys; sys.path.insert(0, {str(PEERS.parents[1])!r})\n"
            "from benchmarks.peers import __main__ as peers, matches\n"
            "peers.stop_on_sigterm()\n"
            f"command = [sys.executable, {str(script)!r}]\n"
            f"matches.execute(command, 'run', 60.0, {str(tmp_path)!r}, dict(os.environ))\n",
        ]
    )
    until = time.monotonic() + 60
    while not (child.exists() and child.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.05)
    driver.terminate()
    assert driver.wait(60) == 143
    assert is_gone(int(child.read_text()))


def is_gone(number: int) -> bool:
    """Say whether a process ends within a minute (one that nobody waits for counts as ended)."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_a_script_is_told_game_and_seconds_and_sees_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    script = written(
        tmp_path / "script.py",
        "import json, os, sys\n"
        f"about = {GOOD!r}\n"
        "about['network'] = [sys.argv[1:], os.environ['HOME'], os.getcwd()]\n"
        "about['input'] = os.environ.get('PYTHONPATH')\n"
        "print(json.dumps(about))\n",
    )
    own = known.Peer("x", "x", str(script), (), "", ("--algorithm", "a"), ("--network", "b"))
    line = matches.run_theirs(sys.executable, own, "alike", "space_invaders", 12.5)
    words, home, folder = line["network"]
    assert words[:4] == ["--algorithm", "a", "--network", "b"]
    assert words[4:] == ["--game", "SpaceInvaders", "--seconds", "12.5"]
    scored = matches.run_theirs(sys.executable, own, "own", "pong", 3600.0, 18.0)
    assert scored["network"][0][-4:] == ["--seconds", "3600", "--score", "18"]
    assert line["input"] is None
    assert os.path.realpath(home) == folder != os.path.realpath(os.environ["HOME"])
    line = matches.run_theirs(sys.executable, own, "own", "pong", 60.0)
    assert line["network"][0] == ["--algorithm", "a", "--game", "Pong", "--seconds", "60"]


def a_training(folder: Path, lines: Sequence[dict[str, Any]]) -> str:
    """Return a program that writes metrics as a training of ours does, at once."""
    program = written(
        folder / "gelada",
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        "words = sys.argv[1:]\n"
        "run = pathlib.Path(words[words.index('--out') + 1])\n"
        "run.mkdir()\n"
        f"lines = {[json.dumps(line) for line in lines]!r}\n"
        "(run / 'metrics.jsonl').write_text('\\n'.join(lines))\n"
        "about = {'about': {'precision': 'bfloat16'}}\n"
        "(run / 'config.json').write_text(json.dumps(about))\n",
    )
    program.chmod(0o755)
    return str(program)


POINTS = [(5, 1_000), (6, 9_000), (8, 10_000), (12, 18_000), (15, 24_000)]
"""Seconds and steps of a training."""


def test_ours_is_the_rate_of_the_steady_part(tmp_path: Path) -> None:
    program = a_training(tmp_path, [{"seconds": s, "steps": n} for s, n in POINTS])
    line = matches.run_ours(program, ("pong", "--epochs", "4"), 90.0)
    assert (line["steps"], line["seconds"], line["steps_per_s"]) == (14_000, 7.0, 2_000.0)
    assert line["precision"] == "bfloat16"
    assert line["command"] == "gelada train pong --epochs 4 --no-finish --minutes 1.75"


def test_ours_has_a_score_once_fifty_games_have(tmp_path: Path) -> None:
    # a game or two may have the score at first; `best` waits for 50
    means = [(None, None), (19.0, None), (-20.0, -20.0), (18.0, 18.0), (17.0, 18.0)]
    lines = [
        {"seconds": s, "steps": n, "score": score, "best": best}
        for (s, n), (score, best) in zip(POINTS, means, strict=True)
    ]
    line = matches.learn_ours(a_training(tmp_path, lines), "pong", 3, 3600.0, 18.0)
    assert line["reached"] == {"seconds": 12, "steps": 18_000}
    assert (line["score"], line["within"], line["last"]) == (18.0, 3600.0, 17.0)
    assert line["curve"] == [[6, 9_000, 19.0]]  # a point a minute
    assert line["steps_per_s"] == 2_000.0
    words = "--seed 3 --until-score 18 --steps 100000000 --no-finish --minutes 60"
    assert line["command"] == f"gelada train pong {words}"
    line = matches.learn_ours(a_training(tmp_path, lines), "pong", 3, 3600.0, 18.5)
    assert line["reached"] == {"seconds": None, "steps": None}


def test_ours_is_trained_with_the_seeds_of_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def learn_ours(_gelada: str, game: str, seed: int, seconds: float, score: float) -> Any:
        assert (game, seconds, score) == ("pong", 3600.0, 18.0)
        if seed == 4:
            raise venvs.Failed("ours", "exit code 3: diverged")
        reached = {"seconds": 60.0 * seed, "steps": 1_000}
        asked = {"score": score, "within": seconds, "last": 18.1}
        return {"version": "0", "steps_per_s": 3_000.0, "reached": reached, **asked}

    monkeypatch.setattr(peers, "BOOK", tmp_path / "peers.jsonl")
    monkeypatch.setattr(peers, "install", None)
    monkeypatch.setattr(peers, "learn_ours", learn_ours)
    assert peers.main(["--peer", "gelada", "--score", "18"]) == 1
    assert "gelada score, seed 5: 5.0 min, 1,000 steps" in capsys.readouterr().out


def test_a_training_of_ours_that_fails_is_no_figure_either(tmp_path: Path) -> None:
    program = written(
        tmp_path / "gelada", f"#!{sys.executable}\nraise SystemExit('--width 0: bad')"
    )
    program.chmod(0o755)
    with pytest.raises(venvs.Failed, match="ours: exit code 1: --width 0: bad"):
        matches.run_ours(str(program), ("pong",), 10.0)
    with pytest.raises(venvs.Failed, match="ours"):
        matches.run_ours(str(tmp_path / "none"), ("pong",), 10.0)


def test_both_run_in_turn_and_ours_begins() -> None:
    order: list[str] = []
    lines: list[dict[str, Any]] = []

    def side(name: str, rates: list[float]) -> Any:
        def run() -> dict[str, Any]:
            order.append(name)
            return {"steps_per_s": rates.pop(0)}

        return run

    ours, theirs = side("A", [300.0, 200.0, 500.0]), side("B", [100.0, 100.0, 250.0])
    assert matches.match(3, ours, theirs, lines.append) is True
    assert order == ["A", "B", "A", "B", "A", "B"]
    assert [(line["pair"], line["ratio"]) for line in lines] == [(1, 3.0), (2, 2.0), (3, 2.0)]
    assert [line["theirs"]["steps_per_s"] for line in lines] == [100.0, 100.0, 250.0]


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_a_failure_ends_the_match_and_has_no_figure(who: str) -> None:
    rates = {"ours": [300.0, 300.0, 300.0], "theirs": [100.0, 100.0, 100.0]}
    order: list[str] = []
    lines: list[dict[str, Any]] = []

    def side(name: str) -> dict[str, Any]:
        order.append(name)
        if name == who and len(rates[name]) == 2:
            raise venvs.Failed("run", "exit code 1: out of memory")
        return {"steps_per_s": rates[name].pop()}

    assert not matches.match(3, lambda: side("ours"), lambda: side("theirs"), lines.append)
    assert order == ["ours", "theirs", "ours"] + (["theirs"] if who == "theirs" else [])
    assert [line["pair"] for line in lines] == [1, 2]
    assert lines[1]["failed"] == "exit code 1: out of memory"
    assert not {"ours", "theirs", "ratio"} & lines[1].keys()


def test_a_peer_that_does_not_install_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(venv: str) -> str:
        if venv == "sb3":
            raise venvs.Failed("install", "ERROR: No matching distribution found for torch==0")
        return f"{venv}/bin/python"

    ran = []

    def run_theirs(python: str, own: Any, mode: str, game: str, seconds: float) -> dict[str, Any]:
        ran.append((python, mode, game, seconds))
        return {"version": "2", "steps_per_s": 100.0}

    def run_ours(gelada: str, words: Sequence[str], seconds: float) -> dict[str, Any]:
        return {"command": " ".join(words), "steps_per_s": 250.0}

    monkeypatch.setattr(peers, "BOOK", tmp_path / "peers.jsonl")
    monkeypatch.setattr(peers, "install", install)
    monkeypatch.setattr(peers, "run_ours", run_ours)
    monkeypatch.setattr(peers, "run_theirs", run_theirs)
    words = ["--peer", "tianshou-ppo", "--peer", "sb3-a2c", "--pairs", "2", "--seconds", "20"]
    assert peers.main(words) == 1
    lines = [json.loads(text) for text in (tmp_path / "peers.jsonl").read_text().splitlines()]
    failed, *done = lines
    assert (failed["peer"], failed["stage"]) == ("sb3-a2c", "install")
    assert failed["failed"] == "ERROR: No matching distribution found for torch==0"
    assert not {"ours", "theirs", "ratio"} & failed.keys()
    assert [(line["mode"], line["pair"]) for line in done] == [
        ("own", 1),
        ("own", 2),
        ("alike", 1),
        ("alike", 2),
    ]
    assert ran == [("tianshou/bin/python", line["mode"], "pong", 20.0) for line in done]
    assert [line["ratio"] for line in done] == [2.5] * 4
    assert done[0]["ours"]["command"] == "pong"  # our default recipe
    assert "--torso nature --width 512 --size 84" in done[2]["ours"]["command"]
    assert {"processor", "cores", "torch", "commit"} <= done[0]["machine"].keys()
    assert "sb3-a2c: failed (install): ERROR" in capsys.readouterr().out
    assert peers.main([*words[:2], "--pairs", "1"]) == 0


@pytest.mark.parametrize("own", known.PEERS, ids=lambda own: own.name)
def test_a_run_of_ours_like_a_peer_can_be(own: Any) -> None:
    experiment = resolve(Train, "train", own.our_words("alike", "pong")).experiment
    check(experiment)
    network, shape, algorithm = experiment.network, experiment.shape, experiment.algorithm
    assert (network.torso, network.width, network.layer_norm) == ("nature", 512, False)
    assert experiment.games.size == 84
    assert shape.datapoints % algorithm.minibatch in (0, 232)  # Tianshou: 1000 = 3 * 256 + 232
    assert own.our_words("own", "pong") == ("pong",)
    assert (PEERS / own.script).is_file()


def test_games_and_epochs_are_those_of_the_peer() -> None:
    found = {}
    for own in known.PEERS:
        experiment = resolve(Train, "train", own.our_words("alike", "pong")).experiment
        shape, algorithm = experiment.shape, experiment.algorithm
        games = shape.actors * shape.games
        found[own.name] = (games, shape.datapoints, algorithm.minibatch, algorithm.epochs)
    assert found == {
        "sb3-a2c": (16, 80, 80, 1),
        "sb3-ppo": (8, 1024, 256, 4),
        "rllib-appo": (20, 1000, 500, 2),
        "sample-factory-appo": (16, 4096, 1024, 4),
        "tianshou-ppo": (10, 1000, 256, 4),
    }


@pytest.mark.parametrize("venv", sorted({own.venv for own in known.PEERS}))
def test_every_version_is_pinned_and_torch_is_ours(venv: str) -> None:
    lines = (PEERS / f"{venv}.txt").read_text(encoding="utf-8").splitlines()
    assert all(line.count("==") == 1 for line in lines)
    assert venvs.torch_pin() in lines
    assert venvs.torch_pin() == "torch==2.13.0"


def test_an_environment_is_made_once_and_anew_when_its_versions_change(tmp_path: Path) -> None:
    commands: list[list[str]] = []

    def do(command: Sequence[str]) -> None:
        commands.append(list(command))
        (tmp_path / "sb3").mkdir(exist_ok=True)

    python = venvs.install("sb3", tmp_path, do)
    assert python == str(tmp_path / "sb3" / "bin" / "python")
    assert commands[0] == [sys.executable, "-m", "venv", str(tmp_path / "sb3")]
    constraints = commands[1][commands[1].index("-c") + 1]
    assert commands[1][:4] == [python, "-m", "pip", "install"]
    assert Path(constraints).read_text(encoding="utf-8") == "torch==2.13.0\n"
    assert commands[1][-2:] == ["-r", str(PEERS / "sb3.txt")]
    assert venvs.install("sb3", tmp_path, do) == python
    assert len(commands) == 2
    (tmp_path / "sb3" / "installed.txt").write_text("torch==1.0\n", encoding="utf-8")
    venvs.install("sb3", tmp_path, do)
    assert len(commands) == 4


def test_a_failed_installation_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    def do(command: Sequence[str]) -> None:
        (tmp_path / "sb3").mkdir(exist_ok=True)
        if "pip" in command:
            message = "import sys; sys.exit('ERROR: no such version\\nnote: see above')"
            venvs.run([sys.executable, "-c", message])

    with pytest.raises(venvs.Failed, match="install: ERROR: no such version"):
        venvs.install("sb3", tmp_path, do)
    assert not (tmp_path / "sb3").exists()
    with pytest.raises(venvs.Failed, match="install: "):
        venvs.run([str(tmp_path / "no-python")])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--peer", "dopamine"], "invalid choice: 'dopamine'"),
        (["--pairs", "0"], "--pairs must be at least 1"),
        (["--seconds", "1"], "--seconds from 10"),
        (["--peer", "gelada"], "ours is beside each of the others; only with --score"),
    ],
)
def test_flags_that_make_no_sense(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        peers.main(words)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_the_list_says_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert peers.main(["--list", "--peer", "rllib-appo"]) == 0
    own, alike = capsys.readouterr().out.splitlines()[1:]
    assert own == "  own: run_rllib.py, beside gelada train pong"
    assert alike.startswith(
        "  alike: run_rllib.py --network nature, beside gelada train ppo-pong --"
    )
