"""Other systems and commits beside ours: what counts, who runs when, and what a failure leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks import pairs, same
from benchmarks.peers import __main__ as peers
from benchmarks.peers import beside, counting, matches
from benchmarks.tables import speed
from colobus.cli.experiment_flags import resolve
from colobus.cli.train import Train
from colobus.experiment.check import check
from helpers.made_runs import write_metrics

PEERS = Path(peers.__file__).parent

HERE = {"processor": "P", "cores": 2, "memory_gib": 1.0}
GOOD = {"peer": "x", "version": "1", "steps": 900, "seconds": 3.0, "steps_per_s": 300.0}
GOOD |= {"command": "python x.py", "network": "n", "input": "i", "passes": 4}


def test_the_steady_part_leaves_out_the_first_third_and_ends_with_the_last_count() -> None:
    points = [(100.0, 0), (101.0, 5_000), (103.0, 6_000), (106.0, 6_300), (110.0, 6_700)]
    assert counting.steady(points) == {"steps": 700, "seconds": 7.0, "steps_per_s": 100.0}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("print('{\"steps_per_s\": 300}')", 'no result; its last line: {"steps_per_s": 300}'),
        ("pass", "no result; its last line: it said nothing"),
        (f"print('{json.dumps(GOOD)}'); raise SystemExit(3)", "exit code 3: {"),
        (f"print('{json.dumps(GOOD)}'); raise ValueError('no games')", "ValueError: no games"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_script_that_fails_reports_the_peer_and_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, line: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(body, encoding="utf-8")
    monkeypatch.setattr(matches, "install", lambda venv: sys.executable)
    own = matches.Peer("x", "x", str(script), "", "alike enough")
    with pytest.raises(matches.Failed) as failed:
        matches.run_theirs(own, "pong", 1.0)
    stage, told = failed.value.args
    assert stage == "run"
    assert line in told


def test_ours_is_the_rate_of_the_steady_part(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [(5, 1_000), (6, 9_000), (8, 10_000), (12, 18_000), (15, 24_000)]

    def said(stage: str, command: list[str], seconds: float, cwd: str) -> None:
        run = Path(command[command.index("--out") + 1])
        run.mkdir()
        write_metrics(run, [{"seconds": s, "steps": n} for s, n in points])
        (run / "config.json").write_text('{"about": {"precision": "bfloat16"}}')

    monkeypatch.setattr(matches, "said", said)
    line, _ = matches.train(("pong", "--epochs", "4"), 105.0)
    assert (line["steps"], line["seconds"], line["steps_per_s"]) == (14_000, 7.0, 2_000.0)
    assert line["precision"] == "bfloat16"
    assert line["command"] == "colobus train pong --epochs 4 --no-finish --minutes 1.75"


def test_a_peer_that_does_not_install_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(venv: str) -> str:
        if venv == "sb3":
            raise matches.Failed("install", "ERROR: No matching distribution found for torch==0")
        return f"{venv}/bin/python"

    ran = []

    def run_theirs(own: Any, game: str, seconds: float, score: float | None) -> dict[str, Any]:
        ran.append((own.venv, game, seconds, score))
        return {"version": "2", "steps_per_s": 100.0}

    def train(words: Sequence[str], seconds: float) -> tuple[dict[str, Any], list[Any]]:
        assert seconds == 20.0 + matches.START
        return {"command": " ".join(words), "steps_per_s": 250.0}, []

    monkeypatch.setattr(peers, "BOOK", tmp_path / "peers.jsonl")
    monkeypatch.setattr(matches, "install", install)
    monkeypatch.setattr(matches, "train", train)
    monkeypatch.setattr(matches, "run_theirs", run_theirs)
    words = ["--peer", "sample-factory-appo", "--peer", "sb3-ppo", "--pairs", "2"]
    assert peers.main([*words, "--seconds", "20"]) == 1
    lines = [json.loads(text) for text in (tmp_path / "peers.jsonl").read_text().splitlines()]
    matched = [(line["peer"], line["mode"], line["pair"]) for line in lines]
    assert matched == [
        ("sb3-ppo", "own", 1),  # the first failure ends a match
        ("sb3-ppo", "alike", 1),
        *(("sample-factory-appo", mode, pair) for mode in ("own", "alike") for pair in (1, 2)),
    ]
    failed, done = lines[:2], lines[2:]
    assert {line["stage"] for line in failed} == {"install"}
    assert failed[0]["failed"] == "ERROR: No matching distribution found for torch==0"
    assert not {"ours", "theirs", "ratio"} & failed[0].keys()
    assert ran == [("sample-factory", "pong", 20.0, None)] * 4
    assert [line["ratio"] for line in done] == [2.5] * 4
    assert done[0]["ours"]["command"] == "pong"  # our default recipe
    assert "--torso nature --width 512 --size 84" in done[2]["ours"]["command"]
    assert {"processor", "cores", "torch", "commit"} <= done[0]["machine"].keys()
    assert "sb3-ppo own: ERROR: No matching" in capsys.readouterr().out
    assert peers.main([*words[:2], "--pairs", "1", "--seconds", "20"]) == 0


@pytest.mark.parametrize("own", matches.PEERS, ids=lambda own: own.name)
def test_a_run_of_ours_like_a_peer_can_be(own: Any) -> None:
    experiment = resolve(Train, "train", own.our_words("alike", "pong")).experiment
    check(experiment)
    network, shape, algorithm = experiment.network, experiment.shape, experiment.algorithm
    assert (network.torso, network.width, network.layer_norm) == ("nature", 512, False)
    assert experiment.games.size == 84
    assert shape.datapoints % algorithm.minibatch == 0
    assert own.our_words("own", "pong") == ("pong",)
    assert (PEERS / own.script).is_file()


@pytest.mark.parametrize(
    ("head", "standardised"), [("policy", False), ("policy", True), ("q", False)]
)
def test_a_network_of_a_peer_plays_in_ours_as_its_own_layers_do(
    head: str, standardised: bool
) -> None:
    random = np.random.default_rng(1)
    sizes = {
        "torso.convolutions.0": (32, 4, 8, 8),
        "torso.convolutions.1": (64, 32, 4, 4),
        "torso.convolutions.2": (64, 64, 3, 3),
        "torso.hidden": (512, 3136),
        f"heads.{head}": (4, 512),
    }
    if head == "policy":
        sizes["heads.value"] = (1, 512)
    weights = {}
    for name, size in sizes.items():
        weights[f"{name}.weight"] = random.normal(0, 0.05, size).astype(np.float32)
        weights[f"{name}.bias"] = random.normal(0, 0.1, size[0]).astype(np.float32)
    seen = random.integers(0, 256, (5, 4, 84, 84), dtype=np.uint8)
    w = {name: torch.from_numpy(value) for name, value in weights.items()}
    x = torch.from_numpy(seen) / 255  # as NatureCNN of Stable-Baselines3 goes
    if standardised:  # as the normaliser of Sample Factory goes
        mean, variance = torch.rand(2, 84, 84, generator=torch.Generator().manual_seed(1))
        weights["input/mean"] = (255 * mean).numpy()
        weights["input/deviation"] = (255 * variance.sqrt()).numpy()
        x = ((x - mean) / variance.sqrt()).clamp(-5, 5)
    for layer, stride in enumerate((4, 2, 1)):
        name = f"torso.convolutions.{layer}"
        x = functional.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride).relu()
    x = (x.flatten(1) @ w["torso.hidden.weight"].T + w["torso.hidden.bias"]).relu()
    best = (x @ w[f"heads.{head}.weight"].T + w[f"heads.{head}.bias"]).argmax(dim=1)
    agent = beside.network_of(weights, "breakout")
    assert agent.act(seen, "greedy").tolist() == best.tolist()
    assert agent.policy == ("sampled" if head == "policy" else "epsilon")


def test_networks_are_kept_once_after_each_mark(tmp_path: Path) -> None:
    now = [0.0]
    counts = counting.Counts(600.0, clock=lambda: now[0], keep=tmp_path)
    places = []
    for now[0], steps in [(5.0, 0), (64.0, 90), (65.5, 100), (66.0, 110), (400.0, 900)]:
        places.append(counts.place_to_keep(steps))
        counts.see(steps)
    assert places == [None, None, tmp_path / "60-100.npz", None, tmp_path / "395-900.npz"]
    assert counting.Counts(600.0).place_to_keep(10**6) is None


@pytest.mark.parametrize("main", [same.main, pairs.main])
def test_what_is_no_commit_is_a_line(main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 of `same` says that a digest differs."""
    with pytest.raises(SystemExit) as end:
        main(["no-commit"])
    assert end.value.code == 2
    said = "error: argument commit: 'no-commit' is no commit of this clone"
    assert said in capsys.readouterr().err


def test_the_order_changes_from_pair_to_pair_and_the_result_does_not() -> None:
    asked: list[str] = []

    def measure(tree: Path) -> str:
        asked.append(tree.name)
        return f"{tree.name}{len(asked)}"

    found = pairs.in_turn(measure, (Path("other"), Path("today")), 3)
    assert asked == ["other", "today", "today", "other", "other", "today"]
    assert found == [["other1", "today2"], ["other4", "today3"], ["other5", "today6"]]


def test_a_ratio_above_one_says_that_today_is_better() -> None:
    assert pairs.ratios([[2.0, 3.0]]) == [1.5]  # steps per second
    assert pairs.ratios([[2.0, 1.0]], -1) == [2.0]  # seconds


def test_the_table_says_how_many_times_sooner_ours_has_a_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [("sb3-dqn", 61, 9.0), ("sb3-dqn", 3602, 500.0), ("sb3-ppo", 3600, 999.0)]
    known = {
        "standard_error": 1.0,
        "game": "beam_rider",
        "command": "x",
        "time": "",
        "machine": HERE,
    }
    rows = [{"system": x, "seconds": n, "mean": mean, **known} for x, n, mean in found]
    (tmp_path / "beside.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(speed, "RESULTS", tmp_path)
    hour: dict[str, Any] = {
        "command": "y",
        "score": 600.0,
        "seconds": 3600.0,
        "standard_error": 1.0,
    }
    hour["early"] = {"5": hour | {"score": 50.0, "seconds": 290.0}}
    hour["early"]["20"] = hour | {"score": 500.0, "seconds": 1190.0}
    one = SimpleNamespace(line={"result": hour, "time": "", "machine": HERE})
    asked = Mock(seeds=lambda _what, game: [one] if game == "beam_rider" else [])
    ours, dqn, ppo, other = (row.cells for row in speed.beside(asked).rows[4:])
    assert ours[1:] == ("Colobus", "", "", "**50.0** ± 1.0", "", "**500.0** ± 1.0", "", ours[8], "")
    assert (dqn[2], dqn[-1], ppo[-1]) == ("**9.0** ± 1.0", "**3.0**", "never")
    assert other[2] == "not measured yet"
