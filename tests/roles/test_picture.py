"""``reconstruction.png``: every pixel of the frames, not too often, and at the end of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from conftest import catch, stand_in
from gelada.core.types import Batch
from gelada.nets.observations import SHOWN
from gelada.roles.tracker import picture
from gelada.roles.tracker.picture import GAP, MARGIN, Picture, draw
from gelada.runs.folder import RECONSTRUCTION
from gelada.runtime.threads import Inline
from gelada.training.start import begin
from gelada.training.topology import make_graph
from helpers.stacking import stack_at


def frames_of(path: Path, count: int, height: int, width: int) -> tuple[Any, Any]:
    """Return the frames and the reconstructions of a picture in their own size, as RGB."""
    found = cv2.imread(str(path))
    assert found is not None
    scale = -(-picture.SIDE // max(height, width))
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


class Now:
    """A writer that writes at once."""

    def __init__(self) -> None:
        self.written = 0

    def put(self, write: Any) -> None:
        self.written += 1
        write()


def test_it_is_drawn_at_most_once_in_a_while_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("gelada.roles.tracker.picture.time.monotonic", lambda: clock[0])
    writer = Now()
    drawn = Picture(tmp_path / RECONSTRUCTION, stand_in(writer))
    drawn.finish()
    assert writer.written == 0
    grey = [np.full((2, 10, 5), level, dtype=np.uint8) for level in (10, 20, 30, 40)]

    def show(level: int) -> None:
        drawn.show(grey[level], grey[level], 5)

    show(0)
    assert frames_of(tmp_path / RECONSTRUCTION, 2, 10, 5)[0].max() == 10
    clock[0] += picture.SECONDS / 2
    show(1)
    assert writer.written == 1
    clock[0] += picture.SECONDS / 2
    show(2)
    assert writer.written == 2
    assert frames_of(tmp_path / RECONSTRUCTION, 2, 10, 5)[0].max() == 30
    show(3)
    drawn.finish()
    drawn.finish()
    assert writer.written == 3
    assert frames_of(tmp_path / RECONSTRUCTION, 2, 10, 5)[0].max() == 40


@pytest.mark.parametrize("form", ["latent", "auxiliary"])
def test_a_run_leaves_a_picture_of_its_last_batch(form: Any, tmp_path: Path) -> None:
    experiment = catch(512 + 3 * 512, deterministic=True)
    network = replace(experiment.network, autoencoder=form, stack=2)
    experiment = replace(experiment, network=network)
    place = Inline(make_graph(experiment, begin(experiment), tmp_path, patience=0.0))
    batches: list[Batch] = []
    sample = place.roles["replay"].sample

    def keep() -> Batch:
        batches.append(sample())
        return batches[-1]

    place.roles["replay"].sample = keep
    place.run()
    learner = place.roles["learner-0"]
    learner.save_last()
    place.roles["tracker"].finish()
    frames, reconstructions = frames_of(tmp_path / RECONSTRUCTION, SHOWN, 10, 5)
    last = batches[-1]
    every = [
        stack_at(last.frames.numpy(), last.ages.numpy(), t, 2)[:, -1]
        for t in range(last.ages.shape[1])
    ]
    seen = {frame.tobytes() for frame in np.concatenate(every)}
    assert {frame[..., 0].tobytes() for frame in frames} <= seen
    assert len({frame.tobytes() for frame in frames}) > 4
    assert (frames == 255).any(axis=(1, 2, 3)).all()  # the paddle
    assert reconstructions.std() > 1.0
    assert not np.array_equal(frames, reconstructions)


def test_a_run_without_an_autoencoder_leaves_none(tmp_path: Path) -> None:
    experiment = catch(512 + 512, deterministic=True)
    place = Inline(make_graph(experiment, begin(experiment), tmp_path, patience=0.0))
    place.run()
    place.roles["learner-0"].save_last()
    place.roles["tracker"].finish()
    assert (tmp_path / "checkpoints").is_dir()
    assert not (tmp_path / RECONSTRUCTION).exists()
