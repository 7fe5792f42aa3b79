"""docs/sweeps.md and docs/tracking.md run as they stand there; trackers hold what was told."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

import gelada
from gelada.core.files import read_lines, read_metrics

DOCS = Path(__file__).resolve().parents[2] / "docs"


def script(page: str, word: str) -> str:
    """Return the only script of a page that has this word."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return str(found)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")  # of Optuna and its database library
def test_a_sweep_by_optuna() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names: dict[str, Any] = {}
    exec(script("sweeps.md", "optuna"), names)
    study = names["study"]
    assert len(study.trials) == 4
    for trial in study.trials:
        config = Path(f"runs/trial-{trial.number}/config.json").read_text(encoding="utf-8")
        assert f'"lr": {trial.params["lr"]!r}' in config
        assert trial.state.name in ("COMPLETE", "PRUNED")
    assert study.best_trial.intermediate_values


@pytest.mark.filterwarnings("ignore")
def test_a_hopeless_trial_is_pruned_by_the_callback() -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    text = script("sweeps.md", "optuna")
    text = text.replace("steps=20_000", "steps=100_000_000")
    text = text.replace("MedianPruner(n_startup_trials=2)", "ThresholdPruner(lower=2.0)")
    text = text.replace("n_trials=4", "n_trials=1").replace("print(study.best", "(lambda *_: 0)(")
    text = re.sub(r"^\(lambda.*$", "", text, flags=re.MULTILINE)
    names: dict[str, Any] = {}
    exec(text, names)
    (trial,) = names["study"].trials
    assert trial.state.name == "PRUNED"
    assert trial.intermediate_values  # what was reported, until the run had ended


@pytest.mark.filterwarnings("ignore")
def test_mlflow_holds_settings_and_metrics() -> None:
    mlflow = pytest.importorskip("mlflow")
    exec(script("tracking.md", "mlflow"), {})
    client = mlflow.MlflowClient("sqlite:///mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'catch'")
    (run,) = client.search_runs([experiment.experiment_id])
    wanted = gelada.settings(gelada.preset("catch", steps=20_000))
    assert run.data.params == {name: str(value) for name, value in wanted.items()}
    last = read_metrics(Path("runs/with-mlflow"))[-1]
    history = client.get_metric_history(run.info.run_id, "score")
    assert (history[-1].step, history[-1].value) == (last["steps"], pytest.approx(last["score"]))
    assert run.data.metrics["policy_loss"] == pytest.approx(last["policy_loss"])
    assert run.data.tags["folder"] == "runs/with-mlflow"


def logged(data: bytes) -> list[bytes]:
    """Return the records of a file in LevelDB's log format, after its 7 bytes of identification."""
    offset, found, whole = 7, [], b""
    while len(data) - offset >= 7:
        left = 2**15 - offset % 2**15  # in the block
        if left < 7:
            offset += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, offset)
        whole += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            found.append(whole)
            whole = b""
    return found


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_holds_settings_and_metrics() -> None:
    wandb = pytest.importorskip("wandb")
    exec(script("tracking.md", "wandb"), {})
    wandb.teardown()  # its own process writes the end of the file
    (file,) = Path("runs/wandb").glob("offline-run-*/*.wandb")
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in logged(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({"/".join(i.nested_key) or i.key: i.value_json for i in items})
    last = read_metrics(Path("runs/with-wandb"))[-1]
    assert float(rows[-1]["score"]) == pytest.approx(last["score"])
    assert float(rows[-1]["losses/policy_loss"]) == pytest.approx(last["policy_loss"])
    assert wandb.__version__


def test_tensorboard_has_the_names_of_others_and_ours() -> None:
    """Events against metrics.jsonl and episodes.jsonl; none of them is lost."""
    from tensorboardX.proto import event_pb2

    run = Path("run")
    result = gelada.train("catch", run, steps=20_000, log=lambda _line: None)
    (file,) = run.glob("tensorboard/events*")
    data, offset = file.read_bytes(), 0
    scalars: dict[str, list[tuple[int, float]]] = {}
    texts: dict[str, str] = {}
    while offset < len(data):  # TFRecord: length, checksum, data, checksum
        (length,) = struct.unpack_from("<Q", data, offset)
        event = event_pb2.Event.FromString(data[offset + 12 : offset + 12 + length])
        offset += 16 + length
        for value in event.summary.value:
            if value.HasField("tensor"):
                texts[value.tag] = value.tensor.string_val[0].decode()
            else:
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
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
