"""Evaluations beside a run, as TensorBoard events."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tensorboardX.proto import event_pb2

from conftest import make_net
from gelada.ops.flat import Layout
from gelada.roles.tracker import RunFacts, StopRule, Tracker, TrackerSettings
from gelada.training.role_factory import tracker_files


def test_each_evaluation_is_a_point_at_the_steps_of_its_checkpoint(tmp_path: Path) -> None:
    stop = StopRule(until_evaluated=18.0)
    facts = RunFacts(settings={"lr": 0.5})
    tracker = Tracker(
        tracker_files(tmp_path), TrackerSettings(), stop, Layout(make_net()), {}, facts
    )
    assert [tracker.evaluated(mean, steps) for mean, steps in ((3.5, 1000), (18.0, 2500))] == [
        False,
        True,
    ]
    assert tracker.status().evaluated == 18.0
    tracker.finish()
    (file,) = (tmp_path / "tensorboard").iterdir()
    data, offset, points = file.read_bytes(), 0, []
    while offset < len(data):  # TFRecord: length, checksum, data, checksum
        (length,) = struct.unpack_from("<Q", data, offset)
        event = event_pb2.Event.FromString(data[offset + 12 : offset + 12 + length])
        offset += 16 + length
        points += [
            (event.step, value.simple_value)
            for value in event.summary.value
            if value.tag == "eval/episodic_return"
        ]
    assert points == [(1000, pytest.approx(3.5)), (2500, pytest.approx(18.0))]
