"""TensorBoard and other trackers hold what the run has told them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import colobus
from colobus.cli.main import run as command
from colobus.core.files import read_lines
from colobus.roles.tracker import Status
from colobus.runs.curves import read_metrics
from colobus.training.tracking import CLIENTS, Tracked
from helpers.launching import refused
from helpers.made_runs import events_of

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.slow
def test_tensorboard_has_the_names_of_others_and_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events against metrics.jsonl and episodes.jsonl; none of them is lost."""
    monkeypatch.setattr("colobus.roles.tracker.tensorboard.END_SECONDS", 300.0)
    run = Path("run")
    result = colobus.train("catch", run, steps=20_000, log=lambda _line: None)
    scalars, texts = events_of(run)
    lines, episodes = read_metrics(run), read_lines(run / "episodes.jsonl")
    for tag, name in (
        ("charts/score", "score"),
        ("score", "score"),  # as in version 0.1
        ("losses/policy_loss", "policy_loss"),
        ("policy_loss", "policy_loss"),
        ("losses/approx_kl", "kl"),
        ("losses/clipfrac", "clipped"),
        ("losses/explained_variance", "explained_variance"),
        ("charts/learning_rate", "learning_rate"),
        ("charts/lag_mean", "lag_mean"),
    ):
        wanted = [(line["steps"], line[name]) for line in lines if line[name] is not None]
        assert [step for step, _ in scalars[tag]] == [step for step, _ in wanted], tag
        assert [v for _, v in scalars[tag]] == pytest.approx([v for _, v in wanted]), tag
    for name, tag in (("score", "charts/episodic_return"), ("length", "charts/episodic_length")):
        before = 0
        for step, value in scalars[tag]:
            since = [each[name] for each in episodes if before < each["steps"] <= step]
            assert value == pytest.approx(sum(since) / len(since)), tag
            before = step
    assert len(episodes) == result.status.games
    assert {episode["length"] for episode in episodes} == {9}
    assert all(value > 0 for _, value in scalars["charts/SPS"])
    assert "|lr|0.002|" in texts["hyperparameters/text_summary"]
    assert "|actors|2|" in texts["hyperparameters/text_summary"]


class Client(ModuleType):
    """Stands for wandb and trackio: keeps what their functions are called with."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.begun: list[dict[str, Any]] = []
        self.lines: list[tuple[int, dict[str, Any]]] = []
        self.films: list[str] = []
        self.ended = 0
        self.broken = ""

    def init(self, **arguments: Any) -> Any:
        print("a client says much")
        if self.broken == "init":
            raise ConnectionError("no\nserver")
        self.begun.append(arguments)
        named = {"id": arguments.get("id") or "run-1", "url": None}
        return SimpleNamespace(**named, log=self.log, finish=self.finish)

    def log(self, values: dict[str, Any], step: int | None = None) -> None:
        if self.broken == "log":
            raise ConnectionError("no server")
        if "film" in values:
            self.films.append(values["film"])
        else:
            assert step is not None
            self.lines.append((step, values))

    def finish(self) -> None:
        self.ended += 1

    def Video(self, path: str, **_: Any) -> str:
        return path


@pytest.fixture(params=["wandb", "trackio"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(request.param)
    monkeypatch.setitem(sys.modules, request.param, made)
    monkeypatch.setattr("colobus.training.tracking.EVERY_SECONDS", 0.5)
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.mark.slow
def test_a_run_and_its_resumption_are_one_tracked_run(client: Client) -> None:
    """Settings once, metrics at their steps, every film once, and the same run again."""
    name: Any = client.__name__
    lines: list[str] = []
    more: dict[str, Any] = {"track": name, "log": lines.append}
    colobus.train("catch", "run", steps=20_000, **more)
    (said,) = [line for line in lines if line.startswith(f"tracked by {name}: ")]
    assert said.endswith("offline-run-*" if name == "wandb" else "--project colobus")
    assert client.begun[0]["config"] == colobus.settings(colobus.preset("catch", steps=20_000))
    assert client.begun[0]["project"] == "colobus"
    assert name == "trackio" or client.begun[0]["mode"] == "offline"
    first = len(client.lines)
    steps, values = client.lines[-1]
    last = read_metrics(Path("run"))[-1]
    assert steps == last["steps"]
    assert values["charts/score"] == pytest.approx(last["score"])
    assert values["losses/policy_loss"] == pytest.approx(last["policy_loss"])
    assert -1 <= values["charts/episodic_return"] <= 1
    assert values["charts/SPS"] > 0
    assert (client.films, client.ended) == ([], 1)
    (Path("run") / "videos").mkdir()
    for film in ("film.mp4", "videos/20000.mp4"):
        (Path("run") / film).write_bytes(b"film")
    for goal in (30_000, 40_000):
        colobus.train(resume="run", steps=goal, **more)
    assert client.films == ["run/film.mp4", "run/videos/20000.mp4"]
    assert client.ended == 3
    assert [step for step, _ in client.lines] == sorted(step for step, _ in client.lines)
    assert len(client.lines) > first
    again = "id" if name == "wandb" else "name"
    kept = json.loads(Path("run/tracked.json").read_text())[name]["run"]
    assert [one[again] for one in client.begun[1:]] == [kept, kept]


def test_films_made_anew_are_sent_again_and_evaluations_have_their_name(client: Client) -> None:
    run = Path("run")
    run.mkdir()
    for made in (10**18, 2 * 10**18, 2 * 10**18):
        tracked = Tracked(client.__name__, colobus.preset("catch"), run, print)
        tracked.update(Status(steps=7, seconds=1.0, evaluated=0.5))
        (run / "film.mp4").write_bytes(b"film")
        os.utime(run / "film.mp4", ns=(made, made))
        tracked.close()
    assert client.films == ["run/film.mp4"] * 2
    steps, values = client.lines[0]
    assert (steps, values["eval/episodic_return"]) == (7, 0.5)
    assert "charts/evaluated" not in values


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["init", "log"])
def test_a_tracker_that_fails_costs_one_line(client: Client, broken: str) -> None:
    client.broken = broken
    lines: list[str] = []
    name: Any = client.__name__
    result = colobus.train("catch", "run", steps=20_000, track=name, log=lines.append)
    assert result.steps >= 20_000
    (why,) = (line for line in lines if line.startswith("--track"))
    assert client.ended == (broken == "log")  # for the next run of this process
    assert re.fullmatch(rf"--track {name}: ConnectionError: no server; the run goes on", why)


def test_stdout_stays_json(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "catch", "--steps", "3000", "--no-finish", "--json", "--out", "run"]
    assert command([*words, "--track", client.__name__]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["folder"] == "run"
    assert "a client says much" in said.err
    assert f"--resume run --steps {2 * client.lines[-1][0]} --track {client.__name__}" in said.err


@pytest.mark.slow
def test_a_tracker_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CLIENTS:
        monkeypatch.setitem(sys.modules, name, None)
        said = refused("train", "catch", "--track", name)
        assert said.endswith(f"; install it with: pip install 'colobus[{name}]'\n")
    unknown: Any = "neptune"
    with pytest.raises(colobus.ColobusError, match="must be one of wandb, trackio, mlflow"):
        colobus.train("catch", track=unknown)
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_holds_settings_metrics_and_a_film(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setattr("colobus.training.tracking.EVERY_SECONDS", 0.5)
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    colobus.train("catch", "run", steps=20_000, track="mlflow")
    Path("run/film.mp4").write_bytes(b"film")
    colobus.train(resume="run", steps=30_000, track="mlflow")
    client = mlflow.MlflowClient("sqlite:///mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'colobus'")
    (found,) = client.search_runs([experiment.experiment_id])
    wanted = colobus.settings(colobus.preset("catch", steps=20_000))
    assert found.data.params == {name: str(value) for name, value in wanted.items()}
    last = read_metrics(Path("run"))[-1]
    history = client.get_metric_history(found.info.run_id, "charts/score")
    assert (history[-1].step, history[-1].value) == (last["steps"], pytest.approx(last["score"]))
    assert found.data.metrics["losses/policy_loss"] == pytest.approx(last["policy_loss"])
    assert found.data.tags["folder"] == "run"
    assert (found.info.status, found.info.run_name) == ("FINISHED", "run")
    (film,) = client.list_artifacts(found.info.run_id, "films")
    assert film.path == "films/film.mp4"
