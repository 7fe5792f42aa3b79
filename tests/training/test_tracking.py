"""TensorBoard holds what the run has told it; tests of examples have the other trackers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import colobus
from colobus.core.files import read_lines
from colobus.runs.curves import read_metrics


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_tensorboard_has_the_names_of_others_and_ours() -> None:
    """Events against metrics.jsonl and episodes.jsonl; none of them is lost."""
    from tensorboardX.proto import event_pb2

    run = Path("run")
    result = colobus.train("catch", run, steps=20_000, log=lambda _line: None)
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
