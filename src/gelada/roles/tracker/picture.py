"""``reconstruction.png``: frames of a batch above what an autoencoder makes of them."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np

from gelada.core.files import write_whole
from gelada.core.types import Bytes
from gelada.roles.tracker.writer import Writer

NAME = "reconstruction.png"

SECONDS = 60.0
"""Least time between two pictures, but for the last one of a run."""

SIDE = 120
"""Least length in pixels of a frame's longer side in the picture; frames are enlarged by a whole
number."""

GAP = 6
"""Pixels between frames."""

MARGIN = 24
"""Height in pixels of a line of text."""


class Picture:
    """Draws the newest frames and reconstructions that it is given, not too often.

    Args:
        folder: of the run.
        writer: the thread that draws.
    """

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._file, self._writer = folder / NAME, writer
        self._newest: tuple[Bytes, Bytes, int] | None = None  # not drawn yet
        self._drawn = 0.0

    def show(self, frames: Bytes, reconstructions: Bytes, steps: int) -> None:
        """Take frames and their reconstructions; see `draw`."""
        self._newest = frames, reconstructions, steps
        if time.monotonic() - self._drawn >= SECONDS:
            self.finish()

    def finish(self) -> None:
        """Let the thread draw what is not drawn yet."""
        if self._newest is None:
            return
        (frames, reconstructions, steps), self._newest = self._newest, None
        self._drawn = time.monotonic()
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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [in_a_row(frames), in_a_row(reconstructions)]
    high, wide = rows[0].shape[:2]
    height, width = 2 * (high + MARGIN) + GAP, wide + 2 * GAP
    dpi = 64  # a power of two: lengths in pixels are then exact
    figure = Figure(figsize=(width / dpi, height / dpi), dpi=dpi)
    FigureCanvasAgg(figure)
    words = (f"frames after {steps:,} steps", "their reconstructions")
    for i, (row, text) in enumerate(zip(rows, words, strict=True)):
        below = height - (i + 1) * (high + MARGIN)
        figure.figimage(row, GAP, below, origin="upper")
        figure.text(GAP / width, (below + high + MARGIN / 4) / height, text, fontsize=13)
    data = io.BytesIO()
    figure.savefig(data, format="png")
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
