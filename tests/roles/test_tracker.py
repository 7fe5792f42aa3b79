"""The tracker: what it adds up over learners, when it writes, what it refuses to write."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import torch

from colobus.core.checkpoint import newest_checkpoint
from colobus.core.files import read_lines
from colobus.core.types import Episode, Params, Traffic, Update, Version
from colobus.nets.observations import SHOWN
from colobus.ops.flat import Layout
from colobus.roles.tracker import Exactly, Resume, RunFacts, StopRule, Tracker, TrackerSettings
from colobus.roles.tracker import tracker as tracker_module
from colobus.roles.tracker.picture import GAP, MARGIN, SECONDS, SIDE, Picture, draw
from colobus.roles.tracker.tracker import StageShares
from colobus.runs.folder import RECONSTRUCTION
from colobus.training.role_factory import tracker_files
from colobus.training.run import train
from conftest import catch, make_net
from helpers.gradients import stack_at
from helpers.made_runs import events_of
from helpers.outcomes import batches_of, place_inline
from helpers.variants import with_network

LAYOUT = Layout(make_net())
VECTOR = torch.arange(LAYOUT.size, dtype=torch.float32)
SETTINGS = TrackerSettings(tensorboard=False)
NEVER = StopRule()


def make_tracker(folder: Path | None = None, stop: StopRule = NEVER, **more: Any) -> Tracker:
    files = tracker_files(folder) if folder else None
    more["resume"] = Resume(exactly=Exactly() if more.get("every") else None)
    return Tracker(files, SETTINGS, stop, LAYOUT, {}, RunFacts(**more))


def update(learner: int, number: int, **more: Any) -> Update:
    values = {"policy_loss": float(learner), f"of {learner}": 1.0}
    fields: dict[str, Any] = {"steps": 10, "lag": (1.0, 1.0, 1.0), "values": values}
    return Update(learner, Version(0, number), **(fields | more))


def workers_of(tracker: Tracker) -> Any:
    return tracker.status().workers


def test_steps_of_all_learners_add_up_and_what_is_shown_is_the_mean_of_their_newest() -> None:
    tracker = make_tracker(steps=500, learners=2)
    for learner, number, lag in [
        (0, 1, (9.0, 9.0, 9.0)),
        (0, 2, (1.0, 3.0, 4.0)),
        (1, 1, (0.0, 2.0, 5.0)),
    ]:
        assert not tracker.report(update(learner, number, lag=lag))[0]
    status = tracker.status()
    assert status.steps == 500 + 10 * 3
    assert status.version == 2  # the newest, and not the last
    assert status.workers is None  # the servers step a learner's own memory
    assert status.lag == (0.0, 2.5, 5.0)
    assert status.values == {"policy_loss": 0.5, "of 0": 1.0, "of 1": 1.0}


def test_a_role_that_begins_again_is_told_so_and_goes_on_at_the_steps_of_the_run() -> None:
    tracker = make_tracker(steps=500, learners=2)
    assert tracker.begin("learner-0")[:2] == (0, 500)
    tracker.report(update(0, 1))
    assert tracker.begin("learner-1")[:2] == (0, 500)  # late, but as if first
    assert tracker.begin("learner-0")[:2] == (1, 510)
    tracker.report(update(1, 1))
    assert tracker.begin("learner-0")[:2] == (2, 520)
    assert tracker.begin("actor-0")[:2] == (0, 500)


def test_workers_traffic_is_summed_and_waits_are_averaged() -> None:
    tracker = make_tracker(learners=3)
    tracker.report(update(0, 1, traffic=Traffic(1, 0, 0, 100), queue=7, waited=9.0))
    tracker.report(update(1, 1, traffic=Traffic(2, 1, 0, 300), queue=1, waited=0.5))
    tracker.report(update(0, 2, traffic=Traffic(5, 2, 1, 600), queue=2, waited=1.5))
    workers = workers_of(tracker)
    assert workers.traffic == Traffic(counted=7, dropped=3, partial=1, moved=900)
    assert (workers.active, workers.all, workers.updates) == (2, 3, 3)
    assert (workers.queue, workers.waited) == (1.5, 1.0)
    tracker.report(update(0, 3, traffic=Traffic(1, 0, 0, 100)))  # of one in the place of a lost one
    tracker.report(update(0, 4, traffic=Traffic(2, 1, 0, 200)))
    assert workers_of(tracker).traffic == Traffic(counted=9, dropped=4, partial=1, moved=1100)


def test_a_learner_that_was_silent_is_not_active(now: list[float]) -> None:
    tracker = make_tracker(learners=2)
    active = []
    for learner, passed in [(0, 0.0), (1, 0.0), (0, 9.0), (0, 2.0)]:
        now[0] += passed
        tracker.report(update(learner, 1, traffic=Traffic()))
        active.append(workers_of(tracker).active)
    assert active == [1, 2, 2, 1]  # at the end learner 1 has said nothing for 11 s


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_deterministic_round_is_taken_in_at_once_in_order(order: tuple[int, ...]) -> None:
    tracker = make_tracker(stop=StopRule(steps=55), every=10, learners=3)
    status = tracker.status()
    for learner in (order[0], *order[:2]):  # the first one again, as after an error: it counts once
        assert not tracker.report(update(learner, 1, values={"loss": 0.1 * learner}))[0]
        assert tracker.status() == status  # nothing until all have come
    assert not tracker.report(update(order[2], 1, values={"loss": 0.1 * order[2]}))[0]
    status = tracker.status()
    assert (status.steps, status.version) == (30, 1)
    assert status.values == {"loss": (0.0 + 0.1 + 0.2) / 3}  # the same bits in any order
    assert [tracker.report(update(learner, 2))[0] for learner in order] == [False, False, True]


def test_games_of_a_deterministic_round_wait_for_it_and_stay_in_the_order_they_ended_in() -> None:
    """Sorted by their scores, the newest 50 were the best 50, and Catch ended too early."""
    tracker = make_tracker(every=10, learners=2)
    for actor, round, scores in [
        (1, 0, [1.0] * 20 + [-1.0] * 25),
        (0, 1, [9.0]),
        (0, 0, [1.0] * 10 + [-1.0] * 10),
    ]:
        tracker.episodes([Episode(actor, round, score, 9) for score in scores])
    for version, games, total in (
        (1, 65, -5 + 20 - 25),  # the newest 50 are five of actor 0, and all of actor 1
        (2, 66, -4 + 20 - 25 + 9),
    ):
        for learner in range(2):
            tracker.report(update(learner, version))
        assert (tracker.status().games, tracker.status().score) == (games, total / 50)


def test_steps_behind_marked_and_newest_versions_are_remembered() -> None:
    tracker = make_tracker(steps=7, every=10, learners=2, marked=3)
    for number in range(1, 8):
        for learner in range(2):
            tracker.report(update(learner, number))
    assert {n: tracker.steps_at(n) for n in range(9)} == {
        **dict.fromkeys(range(9)), 1: 27, 3: 67, 4: 87, 5: 107, 6: 127, 7: 147,
    }  # fmt: skip


def test_every_game_has_a_line_until_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "GAMES_WITH_LINES", 8)
    for first, end in ((1, 31), (31, 101)):  # the second run goes on with the first
        tracker = make_tracker(tmp_path, counters={"games": first - 1})
        for number in range(first, end):
            tracker.episodes([Episode(0, 0, float(number), 5)])
            tracker.report(update(0, number))
        tracker.finish()
    lines = read_lines(tmp_path / "episodes.jsonl")
    every = [*range(1, 9), *range(10, 17, 2), *range(20, 33, 4), *range(40, 65, 8), 80, 96]
    assert [line["score"] for line in lines] == every
    assert [line.get("games") for line in lines[7:10]] == [None, 2, 2]
    assert sum(line.get("games", 1) for line in lines) == 96


def slices(*versions: Version) -> list[Params]:
    cuts = LAYOUT.cut(len(versions))
    return [Params(v, VECTOR[cut]) for v, cut in zip(versions, cuts, strict=True)]


EIGHT = slices(*[Version(0, 8)] * 3)


def save(tracker: Tracker, parts: list[Params], **more: Any) -> None:
    states = [{"mean": 2 * p.values, "count": torch.tensor(3.0)} for p in parts]
    tracker.checkpoint(parts, states, {"entropy": torch.tensor(0.25)}, 123, **more)


def test_a_checkpoint_is_put_together_from_its_slices(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path)
    save(tracker, slices(Version(1, 4), Version(1, 4), Version(1, 4)))
    tracker.finish()
    path, found, _ = newest_checkpoint(tmp_path / "checkpoints")
    assert path.name == "00000004.safetensors"
    assert (found.version, found.steps) == (Version(1, 4), 123)
    for name, tensor in LAYOUT.named(VECTOR).items():
        assert torch.equal(found.tensors[f"parameter/{name}"], tensor)
        assert torch.equal(found.tensors[f"optimizer/mean/{name}"], 2 * tensor)
    assert found.tensors["optimizer/count"] == 3.0
    assert found.tensors["aux/entropy"] == 0.25
    assert "server_versions" not in found.counters


def test_a_checkpoint_needs_all_slices_of_one_version_unless_mixed(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path)
    for lost in range(3):
        with pytest.raises(ValueError, match=f"needs all {LAYOUT.size} parameters, got "):
            save(tracker, EIGHT[:lost] + EIGHT[lost + 1 :])
    parts = slices(Version(0, 4), Version(0, 6))
    with pytest.raises(ValueError, match="a checkpoint needs slices of one version, got"):
        save(tracker, parts)
    save(tracker, parts, mixed=True)  # as in asynchronous runs
    tracker.finish()
    path, found, _ = newest_checkpoint(tmp_path / "checkpoints")
    assert list(path.parent.glob("*.safetensors")) == [path]
    assert found.version == Version(0, 6)
    assert found.counters["server_versions"] == [4, 6]


def lines_of(folder: Path, now: list[float], *passed: float, **more: Any) -> list[dict[str, Any]]:
    """Return the lines of a run from step 500 on, with a report of 200 after so many seconds."""
    tracker = make_tracker(folder, steps=500, **more)
    tracker.spent({"actor-0": {"act": 1.0}}, cores=1.5)
    told: dict[str, Any] = {"traffic": Traffic(3, 2, 1, 400), "queue": 2, "waited": 0.5}
    for number, seconds in enumerate(passed, 1):
        now[0] += seconds
        tracker.report(update(0, number, steps=200, **told))
    tracker.finish()
    return read_lines(folder / "metrics.jsonl")


@pytest.mark.parametrize("every", [1, None])
def test_what_is_timed_stands_in_free_runs_only(
    tmp_path: Path, now: list[float], every: int | None
) -> None:
    lines = lines_of(tmp_path, now, 10.0, 0.5, 3.5, every=every)
    timed = {"time_actor_act": 1.0, "cores_busy": 1.5, "moved_bytes": 400, "active_workers": 1}
    timed |= {"queue_depth": 2, "waited_seconds": 0.5}
    free = [timed | {"throughput": 20.0, "updates": 1}, timed | {"throughput": 100.0, "updates": 3}]
    found = [{name: line[name] for name in free[0] if name in line} for line in lines]
    assert found == (free if every is None else [{}] * 3)  # free: none is due after half a second
    gradients = {"gradients_counted": 3, "gradients_dropped": 2, "gradients_partial": 1}
    assert all(line.items() >= gradients.items() for line in lines)


def test_the_last_line_has_no_speed_of_milliseconds(tmp_path: Path, now: list[float]) -> None:
    lines = lines_of(tmp_path, now, 10.0, 2.0, 0.001, stop=StopRule(steps=1_100))
    assert [line["throughput"] for line in lines] == [20.0, 100.0, 100.0]


@pytest.mark.parametrize("every", [10, None])
def test_a_run_that_is_stopped_between_two_lines_has_a_last_one(
    tmp_path: Path, now: list[float], every: int | None
) -> None:
    assert lines_of(tmp_path, now, 0.9, 0.9, every=every)[-1]["steps"] == 900


def test_a_mean_of_fewer_games_than_were_asked_for_is_below_those_of_all(tmp_path: Path) -> None:
    tracker = make_tracker(tmp_path)
    told = ((7.0, False), (4.0, True), (9.0, False), (6.0, True))
    for version, (mean, whole) in enumerate(told):
        tracker.evaluated(mean, 100, version, whole)
    save(tracker, EIGHT)
    tracker.finish()
    _, found, _ = newest_checkpoint(tmp_path / "checkpoints")
    assert found.counters["evaluated"] == [3, 6.0, 1.0]


def test_what_is_kept_is_asked_when_old_checkpoints_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation may end while a checkpoint is written, and its own was written back."""
    tracker, kept = make_tracker(tmp_path), list[set[int]]()

    def write(*_: Any) -> None:
        tracker.evaluated(9.0, 30, 3)

    def forget(*given: Any) -> None:
        kept.append(set(given[-1]))

    monkeypatch.setattr("colobus.roles.tracker.checkpoints.write_checkpoint", write)
    monkeypatch.setattr("colobus.roles.tracker.checkpoints.forget_old", forget)
    save(tracker, EIGHT)
    tracker.finish()
    assert 3 in kept[-1]


def test_each_evaluation_is_a_point_at_the_steps_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.roles.tracker.tensorboard.END_SECONDS", 300.0)
    facts = RunFacts(settings={"lr": 0.5})
    tracker = Tracker(tracker_files(tmp_path), TrackerSettings(), NEVER, LAYOUT, {}, facts)
    tracker.evaluated(3.5, 1000, 10)
    tracker.evaluated(18.0, 2500, 25)
    assert tracker.status().evaluated == 18.0
    tracker.finish()
    points = events_of(tmp_path)[0]["eval/episodic_return"]
    assert points == [(1000, 3.5), (2500, 18.0)]


def test_shares_are_those_since_the_last_line_and_of_all_roles_of_a_kind() -> None:
    shares = StageShares()
    assert shares.values() == {}
    shares.take({"actor-0": {"act": 1.0, "emulate": 3.0}, "actor-1": {"act": 0.0, "emulate": 4.0}})
    assert shares.values() == {"time_actor_act": 0.125, "time_actor_emulate": 0.875}
    shares.take(
        {
            "actor-0": {"act": 3.0, "emulate": 3.0},
            "actor-1": {"act": 1.0, "emulate": 5.0},
            "learner-0": {"learn": 1.0, "wait for experience": 3.0},
        }
    )
    learner = {"time_learner_learn": 0.25, "time_learner_wait_for_experience": 0.75}
    assert shares.values() == {"time_actor_act": 0.75, "time_actor_emulate": 0.25, **learner}
    again = {"time_actor_act": 0.25, "time_actor_emulate": 0.75, **learner}
    for _ in range(2):  # a role that began again counts anew, and silence keeps the shares
        shares.take({"actor-0": {"act": 1.0, "emulate": 6.0}})
        assert shares.values() == again
        assert shares.values() == again


@pytest.mark.slow
def test_a_run_writes_them(tmp_path: Path) -> None:
    looks = iter(range(6))

    def watch(status: Any, *_: object) -> None:
        if status.version and next(looks, None) is None:  # six looks since it learns
            raise KeyboardInterrupt

    train(catch(10_000_000), tmp_path / "run", watch=watch, log=lambda _: None)
    last = read_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert {"time_actor_act", "time_actor_emulate", "time_learner_learn"} <= last.keys()
    for kind in ("actor", "learner"):
        shares = [v for name, v in last.items() if name.startswith(f"time_{kind}_")]
        assert sum(shares) == pytest.approx(1.0, abs=0.01)


def frames_of(path: Path, count: int, height: int, width: int) -> tuple[Any, Any]:
    """Return the frames and the reconstructions of a picture in their own size, as RGB."""
    found = cv2.imread(str(path))
    assert found is not None
    scale = -(-SIDE // max(height, width))
    high, wide = height * scale, width * scale
    assert found.shape == (2 * (high + MARGIN) + GAP, count * (wide + GAP) + GAP, 3)
    rows = []
    for top in (MARGIN, high + 2 * MARGIN):
        lefts = [GAP + i * (wide + GAP) for i in range(count)]
        large = np.stack([found[top : top + high, left : left + wide, ::-1] for left in lefts])
        small = large[:, ::scale, ::scale]
        np.testing.assert_array_equal(large, small.repeat(scale, 1).repeat(scale, 2))
        rows.append(small)
    return rows[0], rows[1]


@pytest.mark.parametrize("shape", [(10, 5), (42, 42), (84, 84), (84, 84, 3), (210, 160, 3)])
def test_every_pixel_is_in_its_place(shape: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames, reconstructions = rng.integers(0, 256, (2, 5, *shape), dtype=np.uint8)
    draw(tmp_path / RECONSTRUCTION, frames, reconstructions, 12_345)
    found = frames_of(tmp_path / RECONSTRUCTION, 5, *shape[:2])
    for want, have in zip((frames, reconstructions), found, strict=True):
        coloured = want if len(shape) == 3 else np.stack([want] * 3, axis=-1)
        np.testing.assert_array_equal(have, coloured)
    assert not list(tmp_path.glob(".*"))


def test_above_each_row_stands_what_it_is(tmp_path: Path) -> None:
    black = np.zeros((8, 42, 42), dtype=np.uint8)
    draw(tmp_path / RECONSTRUCTION, black, black, 12_345)
    found = cv2.imread(str(tmp_path / RECONSTRUCTION))
    assert found is not None
    for top in (0, MARGIN + 126):
        words = found[top : top + MARGIN].min(axis=2)
        assert (words < 100).sum() > 60
        assert (words[:2] > 200).all()  # none cut off
        assert (words[:, -GAP:] > 200).all()


def test_it_is_drawn_now_and_then(tmp_path: Path, now: list[float]) -> None:
    put = Mock(side_effect=lambda write: write())  # a writer that writes at once
    drawn = Picture(tmp_path / RECONSTRUCTION, Mock(put=put))
    drawn.finish()
    assert put.call_count == 0

    def count_and_grey() -> tuple[int, int]:
        return put.call_count, frames_of(tmp_path / RECONSTRUCTION, 2, 10, 5)[0].max()

    for level, passed, want in [
        (10, 0.0, (1, 10)),
        (20, SECONDS / 2, (1, 10)),
        (30, SECONDS / 2, (2, 30)),
        (40, 0.0, (2, 30)),
    ]:
        now[0] += passed
        grey = np.full((2, 10, 5), level, dtype=np.uint8)
        drawn.show(grey, grey, 5)
        assert count_and_grey() == want
    for _ in range(2):
        drawn.finish()
        assert count_and_grey() == (3, 40)


@pytest.mark.parametrize("form", ["latent", "auxiliary"])
def test_a_run_leaves_a_picture_of_its_last_batch(form: Any, tmp_path: Path) -> None:
    experiment = catch(512 + 3 * 512, deterministic=True)
    place = place_inline(with_network(experiment, autoencoder=form, stack=2), folder=tmp_path)
    batches = batches_of(place.roles["replay"])
    place.run()
    learner = place.roles["learner-0"]
    learner.save_last()
    place.roles["tracker"].finish()
    frames, reconstructions = frames_of(tmp_path / RECONSTRUCTION, SHOWN, 10, 5)
    last = batches[-1]
    given = last.frames.numpy(), last.ages.numpy()
    every = [stack_at(*given, t, 2)[:, -1] for t in range(last.ages.shape[1])]
    seen = {frame.tobytes() for frame in np.concatenate(every)}
    assert {frame[..., 0].tobytes() for frame in frames} <= seen
    assert len({frame.tobytes() for frame in frames}) > 4
    assert (frames == 255).any(axis=(1, 2, 3)).all()  # the paddle
    assert reconstructions.std() > 1.0
    assert not np.array_equal(frames, reconstructions)


def test_games_of_a_new_tracker_are_all_new() -> None:
    """On Ray a lost one is built anew, and counts from 0."""
    tracker = make_tracker()
    tracker.episodes([Episode(0, 0, 1.0, 9)] * 3)
    tracker.report(update(0, 1))
    assert [len(tracker.episodes_since(number)[0]) for number in (0, 2, 500)] == [3, 1, 3]
