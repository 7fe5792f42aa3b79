"""Checkpoints of runs of workers are what their servers published; the agents of the zoo."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import Any

import pytest
import torch

from colobus.core.checkpoint import (
    Checkpoint,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
)
from colobus.core.types import Version
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.scores import baselines
from colobus.ops.flat import FlatParameters
from colobus.report.statistics import plus_minus
from colobus.roles.parameters.server import ParameterServer
from colobus.roles.tracker import StopRule, Tracker
from colobus.runs.folder import CLONE, place_of
from colobus.runtime.threads import Inline
from colobus.training.run import train
from colobus.training.saving import SliceSaver, aux_at
from colobus.training.start import begin, make_network
from colobus.training.topology import make_graph
from conftest import distributed_catch, often
from helpers.players import decoded


def test_checkpoints_of_a_run_are_what_its_servers_published(tmp_path: Path) -> None:
    base = distributed_catch(20, workers=2, servers=3, keep_every=5)
    experiment = often(base, deterministic=True, checkpoint_seconds=1e-6)
    start = begin(experiment)
    place = Inline(make_graph(experiment, start, tmp_path, patience=0.0))
    servers = [place.roles[f"server-{i}"] for i in range(3)]
    tracker = place.roles["tracker"]
    log: list[str] = []
    saver = SliceSaver(
        servers, [], tracker, experiment.algorithm, start.version, mixed=False, log=log.append
    )
    published: dict[int, torch.Tensor] = {}
    while not any(role.finished for role in place.active):
        for role in place.active:
            role.step()
            saver.look()
            wait_for_writer(tracker, servers)
        published[servers[0].pull().version.number] = torch.cat([s.pull().values for s in servers])
    saver.last([])
    tracker.finish()
    layout = FlatParameters(make_network(experiment, start)).layout
    found = [read_checkpoint(path) for path in list_checkpoints(tmp_path / "checkpoints")]
    assert [c.version for c in found] == [Version(0, number) for number in (1, 5, 10, 15, 20)]
    for checkpoint in found:
        number = checkpoint.version.number
        assert checkpoint.steps == 512 + number * 144
        want = layout.named(published[number])
        parameters = checkpoint.group("parameter")
        assert all(torch.equal(parameters[name], tensor) for name, tensor in want.items())
        assert checkpoint.group("optimizer")["count"] == number
        rate = aux_at(experiment.algorithm, checkpoint.steps)["learning_rate"]
        assert torch.equal(checkpoint.group("aux")["learning_rate"], rate)
    assert log == []


def wait_for_writer(tracker: Tracker, servers: Sequence[ParameterServer]) -> None:
    """Wait until what all servers have put aside is written: only the newest waits for the disk."""
    kept = [part[0].version.number for server in servers if (part := server.kept())]
    if len(kept) == len(servers) and len(set(kept)) == 1:
        while tracker.status().last_checkpoint != f"{kept[0]:08d}.safetensors":
            pass


def newest(folder: Path) -> Checkpoint:
    _, checkpoint, passed_over = newest_checkpoint(folder / "checkpoints")
    assert passed_over == []
    return checkpoint


def test_an_asynchronous_run_saves_its_servers_versions_and_goes_on(tmp_path: Path) -> None:
    base = distributed_catch(1)
    shape = replace(base.shape, workers=3, asynchronous=True)
    stop = StopRule(steps=5000)
    experiment = replace(base, deterministic=False, shape=shape, stop=stop)
    folder = tmp_path / "run"
    train(experiment, folder, log=pytest.fail)
    first = newest(folder)
    versions = first.counters["server_versions"]
    assert len(versions) == 2
    assert first.version == Version(0, max(versions))
    assert 5000 <= first.steps == 504 + (first.steps - 504) // 72 * 72
    longer = replace(experiment, stop=StopRule(steps=first.steps + 1000))
    train(longer, folder, resume=True, log=lambda line: None)
    second = newest(folder)
    assert second.version.incarnation == 1
    assert second.version.number > first.version.number
    assert second.steps >= first.steps + 1000


ZOO = Path(__file__).resolve().parents[2] / "zoo"
NAMES = sorted(path.parent.name for path in ZOO.glob("*/config.json"))
MOST_BYTES, GAMES = 1_000_000, 100
LOGS = CLONE / "benchmarks" / "results" / "logs" / "zoo.tar.xz"


def scores_of(name: str) -> Any:
    return json.loads((ZOO / name / "evaluation.json").read_text(encoding="utf-8"))


def test_the_zoo_has_two_agents_and_a_list_of_them() -> None:
    assert CLONE / "zoo" == ZOO
    assert NAMES == ["breakout", "pong"]
    listed = re.findall(
        r"^\| `zoo:(\w+)` \|.*?\| ([\d.]+) ± ([\d.]+) \|", text_of("README.md"), re.M
    )
    want = [
        (n, f"{scores_of(n)['mean']:.2f}", f"{scores_of(n)['standard_error']:.2f}") for n in NAMES
    ]
    assert sorted(listed) == want


def text_of(name: str) -> str:
    return (ZOO / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_small_and_its_card_has_its_score(name: str) -> None:
    folder = place_of(Path(f"zoo:{name}"))
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    saved, card = scores_of(name), text_of(f"{name}/README.md")
    assert saved["episodes"] == len(saved["scores"]) == GAMES
    assert saved["mean"] == pytest.approx(sum(saved["scores"]) / len(saved["scores"]))
    assert f"{saved['mean']:.2f} +/- {pstdev(saved['scores']):.2f}" in card
    assert f"protocol {saved['protocol']}" in card
    assert len(decoded(folder / "replay.mp4")[0]) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_plays_far_better_than_random_play(name: str) -> None:
    agent = load(f"zoo:{name}")
    assert agent.games.game == name
    assert agent.checkpoint.steps == scores_of(name)["steps"]
    pair = baselines(name)
    assert pair is not None
    random, human = pair
    assert evaluate(agent, "training", 1).mean > (random + human) / 2


@pytest.mark.parametrize("name", NAMES)
def test_the_report_has_the_score_of_the_card(name: str) -> None:
    report, saved = text_of(f"{name}/report.md"), scores_of(name)
    assert f" | {plus_minus(saved['mean'], saved['standard_error'])} | " in report
    assert f"noop: {GAMES} games, actions sampled, sticky actions 0," in report
    assert "## Published scores" in report
    assert f"({name}/report.md)" in text_of("README.md")


def test_the_score_before_rounding_is_in_the_logs() -> None:
    with tarfile.open(LOGS) as logs:
        file = logs.extractfile("breakout-float32.json")
        assert file is not None
        log = json.loads(file.read())
    said = " ".join(text_of("README.md").split())
    assert (log["protocol"], log["episodes"], log["seed"]) == ("noop", GAMES, 1)
    assert log["mean"] == pytest.approx(sum(log["scores"]) / GAMES)
    assert log["steps"] == scores_of("breakout")["steps"]
    assert f"{log['mean']:.2f} ± {log['standard_error']:.2f}" in said
