"""The picture of an autoencoder: frames of a batch above what it makes of them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from colobus.core.files import write_whole
from colobus.core.timing import now
from colobus.core.types import Bytes
from colobus.roles.tracker.writer import Writer

SECONDS = 60.0
"""Least time between two pictures, but for the last one of a run."""

SIDE = 120
"""Least length in pixels of a frame's longer side in the picture; frames are enlarged by a whole
number."""

GAP = 6
"""Pixels between frames."""

MARGIN, LETTERS = 24, 14
"""Height in pixels of a line of text, and size of its letters."""


class Picture:
    """Draws the newest frames and reconstructions that it is given, not too often.

    Args:
        file: of the picture, a PNG.
        writer: the thread that draws.
    """

    def __init__(self, file: Path, writer: Writer) -> None:
        self._file, self._writer = file, writer
        self._newest: tuple[Bytes, Bytes, int] | None = None  # not drawn yet
        self._drawn = 0.0

    def show(self, frames: Bytes, reconstructions: Bytes, steps: int) -> None:
        """Take frames and their reconstructions; see `draw`."""
        self._newest = frames, reconstructions, steps
        if now() - self._drawn >= SECONDS:
            self.finish()

    def finish(self) -> None:
        """Let the thread draw what is not drawn yet."""
        if self._newest is None:
            return
        (frames, reconstructions, steps), self._newest = self._newest, None
        self._drawn = now()
        self._writer.put(lambda: draw(self._file, frames, reconstructions, steps))


def draw(file: Path, frames: Bytes, reconstructions: Bytes, steps: int) -> None:
    """Write a PNG with a row of frames, and their reconstructions below.

    Args:
        file: where to.
        frames: uint8[M, H, W] or uint8[M, H, W, 3].
        reconstructions: likewise.
        steps: environment steps, for the title.

    Raises:
        OSError: if the file cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont

    rows = [in_a_row(frames), in_a_row(reconstructions)]
    high, wide = rows[0].shape[:2]
    picture = Image.new("RGB", (wide + 2 * GAP, 2 * (high + MARGIN) + GAP), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(LETTERS)
    words = (f"frames after {steps:,} steps", "their reconstructions")
    for i, (row, text) in enumerate(zip(rows, words, strict=True)):
        top = i * (high + MARGIN)
        pen.text((GAP, top + MARGIN // 2), text, fill="black", font=font, anchor="lm")
        picture.paste(Image.fromarray(row), (GAP, top + MARGIN))
    data = io.BytesIO()
    picture.save(data, "PNG")
    write_whole(file, data.getvalue())


def in_a_row(frames: Bytes) -> Bytes:
    """Return frames beside one another in colour, enlarged, with white gaps: uint8[h, w, 3]."""
    count, height, width = frames.shape[:3]
    scale = max(-(-SIDE // max(height, width)), 1)
    if frames.ndim == 3:
        frames = np.repeat(frames[..., None], 3, axis=3)
    large = frames.repeat(scale, axis=1).repeat(scale, axis=2)
    wide = np.pad(large, ((0, 0), (0, 0), (0, GAP), (0, 0)), constant_values=255)
    row: Bytes = np.concatenate(list(wide), axis=1)[:, :-GAP]
    assert row.shape == (height * scale, count * (width * scale + GAP) - GAP, 3)
    return row
