"""Files of films: .mp4 and .gif, whole or not there at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np

from colobus.core.errors import ColobusError
from colobus.core.files import whole_file
from colobus.core.notebook import html_film, html_table
from colobus.core.types import Bytes, Ints
from colobus.runtime.devices import torch_threads


class Format(NamedTuple):
    """How a kind of film is written."""

    codec: str
    pixels: str
    rate: int  # pictures per second, at most
    zoom: tuple[int, int]  # times higher and wider; an Atari's pixels are wider than high
    small: tuple[int, int]  # likewise, for each game of a grid
    options: dict[str, str]


FORMATS = {
    ".mp4": Format("libx264", "yuv420p", 30, (3, 4), (2, 3), {"crf": "20", "preset": "veryfast"}),
    ".gif": Format("gif", "pal8", 15, (2, 3), (1, 2), {}),
}


Progress = Callable[[float, float], None]
"""Called often with the seconds filmed and the seconds asked for."""


class Film(NamedTuple):
    """What was filmed."""

    path: Path
    score: float  # raw return so far, of all games together; the mean of several agents
    steps: int  # agent decisions
    seconds: float  # of film
    over: bool  # whether the (last) game was over at the end, or the film's time was
    games: int  # begun

    def _repr_html_(self) -> str:
        title = f"{self.path}: score {self.score:.7g} in {self.steps:,} steps, {self.seconds:.0f} s"
        return html_table(title, {}) + html_film(self.path)


def format_of(out: Path, seconds: float) -> Format:
    """Return how a film is written.

    Raises:
        ColobusError: if the suffix is another, or ``seconds`` is not positive.
    """
    form = FORMATS.get(out.suffix.lower())
    if form is None:
        raise ColobusError(
            f"film {out.name!r}: a film is an .mp4 or a .gif; name it {out.stem or 'film'}.mp4"
        )
    if not seconds > 0:
        raise ColobusError(f"film of {seconds:g} seconds: must be more than 0; 60 is usual")
    return form


@contextmanager
def filming(out: Path, rate: int) -> Iterator[FilmFile]:
    """Give a film to show pictures to; its file appears at the end of the block.

    Args:
        out: file to write. An older one is replaced, and stays after an error.
        rate: pictures per second that are shown to it.

    Raises:
        ColobusError: if ``out`` cannot be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # one small picture at a time: more threads only wait for each other
        with torch_threads(1), whole_file(out) as temporary:
            film = FilmFile(temporary, out.suffix.lower(), rate)
            with film.container:
                yield film
                film.container.mux(film.stream.encode())
    except (OSError, av.FFmpegError) as error:
        raise ColobusError(
            f"cannot write {out}: {error.strerror or error}; name another file or make room"
        ) from None


class FilmFile:
    """Encodes pictures as they come, leaving some out to keep the format's rate.

    Args:
        path: of the file.
        suffix: name of the format.
        rate: pictures per second that are shown to it.
    """

    def __init__(self, path: Path, suffix: str, rate: int) -> None:
        self.seen = 0  # pictures shown to it
        self._form = FORMATS[suffix]
        self._every = max(rate // self._form.rate, 1)
        self._rate = rate // self._every
        # absolute and with a protocol: FFmpeg takes 12:30/film.mp4 and tcp://x for addresses
        self.container = av.open(f"file:{path.absolute()}", "w", format=suffix[1:])
        codec, options = self._form.codec, self._form.options
        stream = self.container.add_stream(codec, rate=self._rate, options=options)
        assert isinstance(stream, av.VideoStream)
        self.stream = stream
        self.stream.pix_fmt = self._form.pixels
        # of the film exactly: an Atari has 128 colours, a GIF may have 256
        self._numbers: dict[int, int] = {}
        self._palette: Bytes = np.full((256, 4), 255, dtype=np.uint8)  # alpha, red, green, blue

    def show(self, picture: Bytes, zoom: tuple[int, int] = (1, 1), exact: bool = True) -> None:
        """Write a picture, or leave it out.

        Args:
            picture: uint8[H, W, 3].
            zoom: times higher and wider in the film.
            exact: whether all pictures together have at most 256 colours. Else those of a GIF are
                rounded.
        """
        number, rest = divmod(self.seen, self._every)
        self.seen += 1
        if rest:
            return
        if self._form.pixels == "pal8":
            numbers = self._numbered(picture if exact else rounded(picture))
            # PyAV's types leave this form out
            pair: Any = (_enlarged(numbers, zoom), self._palette)
            frame = av.VideoFrame.from_ndarray(pair, format="pal8")
        else:
            frame = av.VideoFrame.from_ndarray(_enlarged(picture, zoom), format="rgb24")
        if number == 0:
            self.stream.width, self.stream.height = frame.width, frame.height
        frame.pts = number
        frame.time_base = Fraction(1, self._rate)
        self.container.mux(self.stream.encode(frame))

    def _numbered(self, picture: Bytes) -> Bytes:
        """Return a picture's colour numbers uint8[H, W]; the palette gets those that are new."""
        packed: Ints = picture.astype(np.int64) @ np.array([65536, 256, 1])
        colours, places = np.unique(packed, return_inverse=True)
        for colour in colours.tolist():
            if colour not in self._numbers:
                number = self._numbers[colour] = len(self._numbers)
                self._palette[number, 1:] = colour >> 16, colour >> 8 & 255, colour & 255
        numbers = np.array([self._numbers[colour] for colour in colours.tolist()], dtype=np.uint8)
        return numbers[places].reshape(picture.shape[:2])


def _enlarged(picture: Bytes, zoom: tuple[int, int]) -> Bytes:
    """Return a picture enlarged, with sides of an even number of pixels."""
    large = picture.repeat(zoom[0], axis=0).repeat(zoom[1], axis=1)
    rows, columns = (side - side % 2 for side in large.shape[:2])  # as the encoder wants
    return np.ascontiguousarray(large[:rows, :columns])


def rounded(picture: Bytes) -> Bytes:
    """Return a picture with at most six values of red, green and blue each: 216 colours."""
    values: Ints = (picture.astype(np.int64) + 25) // 51 * 51
    return values.astype(np.uint8)
