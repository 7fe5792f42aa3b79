"""What an agent sees of an environment of Gymnasium: its observations as frames.

Numbers are a vector: boxes flattened, `Discrete` and `MultiDiscrete` one-hot, in the order of the
space. Pictures keep their height and width, with the channels as planes. Beside a picture each
number is a plane of its own that is the same everywhere, as board games are usually encoded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from colobus.core.arrays import Bools, Frames, joined
from colobus.core.errors import ColobusError
from colobus.envs.actions import MASK, Actions, actions_of, short

Space = spaces.Space[Any]

MOST_NUMBERS = 1_000_000
"""Most numbers of a vector."""

MOST_PLANES = 64
"""Most numbers that are shown as planes beside a picture."""

LARGE = 42
"""Side in pixels from which a picture is taken by convolutions."""

ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)

OWN = "in a function of your own"


class Part(NamedTuple):
    """One array of an observation."""

    path: tuple[Any, ...]  # keys of dictionaries and numbers of tuples that lead to it
    space: Space
    axes: tuple[int, ...] = ()  # of planes, height and width of a picture; () for numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values."""
        return tuple(self.space.shape or ())

    @property
    def board(self) -> tuple[int, ...]:
        """Height and width of a picture."""
        return tuple(self.shape[axis] for axis in self.axes[-2:])

    @property
    def size(self) -> int:
        """Numbers of a vector, or planes of a picture."""
        if self.axes:
            return math.prod(self.shape) // math.prod(self.board)
        match self.space:
            case spaces.Discrete(n=count):
                return int(count)
            case spaces.MultiDiscrete(nvec=counts):
                return int(counts.sum())
        return math.prod(self.shape)

    @property
    def fits_bytes(self) -> bool:
        """Whether all its numbers are whole and from 0 to 255."""
        space = self.space
        if not isinstance(space, spaces.Box) or space.dtype == np.bool_:
            return True
        whole = np.issubdtype(space.dtype, np.integer)
        return whole and bool((space.low >= 0).all() and (space.high <= 255).all())

    def values(self, name: str, observations: Any) -> Any:
        """Return it out of an observation, or out of a batch of them."""
        for key in self.path:
            try:
                observations = observations[key]
            except (KeyError, IndexError, TypeError):
                raise ColobusError(f"{name}: {self.what} is missing in what it returned") from None
        return observations

    def batch(self, name: str, observations: Any) -> Any:
        """Return it out of a batch of observations, or out of each of a list of them."""
        if not isinstance(observations, list):
            return self.values(name, observations)
        return [self.values(name, each) for each in observations]

    def of(self, name: str, observations: Any) -> Any:
        """Return what it shows of observations [B, …]: [B, planes, H, W] or [B, numbers].

        Raises:
            ColobusError: if they are not in the space.
        """
        values = self.batch(name, observations)
        try:
            array: Any = np.asarray(values)
        except ValueError:  # a ragged list
            array = np.asarray(None)
        shape = self.shape
        if array.shape[1:] != shape or array.dtype.kind not in "biuf":
            found = f"{array.dtype}{list(array.shape[1:])}"
            if array.dtype == object:
                found = type(values[0] if isinstance(values, list) else values).__name__
            raise ColobusError(
                f"{name}: {self.what} is {found}, its space says {self.space.dtype}{list(shape)};"
                " return what the space says, or correct the space"
            )
        if self.axes:
            order = (0, *(axis + 1 for axis in self.axes))
            return array.transpose(order).reshape(len(array), -1, *self.board)
        match self.space:
            case spaces.Discrete(n=count, start=start):
                return self._one_hot(name, array[:, None] - start, np.array([count]))
            case spaces.MultiDiscrete(nvec=counts, start=start):
                flat = (array - start).reshape(len(array), -1)
                return self._one_hot(name, flat, counts.ravel())
        return array.reshape(len(array), -1)

    def _one_hot(self, name: str, values: Any, counts: Any) -> Any:
        """Return uint8[B, sum of counts] of numbers [B, N] that are each below their count."""
        if not ((values >= 0) & (values < counts) & (values % 1 == 0)).all():
            raise ColobusError(
                f"{name}: {self.what} is outside its space {short(self.space)}; correct the space"
            )
        found = np.zeros((len(values), int(counts.sum())), dtype=np.uint8)
        rows = np.arange(len(values))[:, None]
        found[rows, (np.cumsum(counts) - counts + values).astype(np.int64)] = 1
        return found

    @property
    def what(self) -> str:
        """It in words."""
        return f"its observation {written(self.path)!r}" if self.path else "its observation"


class Fit(NamedTuple):
    """How an environment fits."""

    name: str
    does: Actions
    parts: tuple[Part, ...]  # that the agent sees, pictures first
    planes: int  # channels of a picture; 1 for a vector
    seen_shape: tuple[int, int]  # H of all planes together, W
    vector: bool
    frame_type: str  # uint8 or float32
    note: str  # one sentence to print, or ""
    mask: Part | None = None  # of the observation, that says which actions are allowed
    is_masked: bool = False  # whether that or an info says it
    limited: bool = False  # whether it is known to cut off games after a time

    @property
    def actions(self) -> int:
        """The number of actions."""
        return len(self.does.table)

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the environment takes."""
        return self.does.names

    @property
    def masks(self) -> int:
        """Actions of the mask at the end of each frame; 0: there is none."""
        return self.actions if self.is_masked else 0

    @property
    def frame_shape(self) -> tuple[int, int]:
        """The shape of a frame, with its mask if it has one."""
        height, width = self.seen_shape
        if height == 1:
            return 1, width + self.masks
        return height - -self.masks // width, width

    @property
    def space(self) -> spaces.Box:
        """The space of a frame."""
        low, high = (0, 255) if self.frame_type == "uint8" else (-np.inf, np.inf)
        return spaces.Box(low, high, self.frame_shape, np.dtype(self.frame_type).type)

    def frames(self, observations: Any, allowed: Bools | None = None) -> Frames:
        """Return frames [B, H, W], copied, of observations.

        Args:
            observations: of B games, [B, …] as a vector environment has them, or a list of B.
            allowed: bool[B, A], the actions that infos allow, if they say it.

        Raises:
            ColobusError: if they are not in the space that the environment says they are in.
        """
        shown = [part.of(self.name, observations) for part in self.parts]
        if not self.vector:
            height, width = self.seen_shape[0] // self.planes, self.seen_shape[1]
            shown = [
                each
                if each.ndim == 4
                else np.broadcast_to(each[:, :, None, None], (*each.shape, height, width))
                for each in shown
            ]
        whole = shown[0] if len(shown) == 1 else np.concatenate(shown, axis=1)
        frames: Frames = whole.astype(self.frame_type)
        exact = self.frame_type != "uint8" or whole.dtype in (np.uint8, np.bool_)
        if not exact and (wrong := frames != whole).any():
            raise ColobusError(
                f"{self.name}: its observation has {whole[wrong][0]:g}, its space says that "
                "its numbers are whole and from 0 to 255; correct the space"
            )
        frames = frames.reshape(len(frames), *self.seen_shape)
        if self.mask is not None:
            masks = self.mask.batch(self.name, observations)
            rows = zip(*masks, strict=True) if isinstance(masks, tuple) else masks
            allowed = np.array([self.does.allowed(row) for row in rows])
        return frames if allowed is None else joined(frames, allowed)

    def check_masks(self, info: Any) -> None:
        """Raise ColobusError if an info has a mask and that of the first ``reset`` had none."""
        if MASK in info and not self.is_masked:
            raise ColobusError(
                f"{self.name}: an info has an {MASK}, but that of reset has none; give it there too"
            )

    def outside(self, observation: Any) -> str:
        """Return a sentence about one observation that is outside of its space, or ""."""
        for part in self.parts:
            if isinstance(space := part.space, spaces.Box | spaces.MultiBinary):
                values = np.asarray(part.values(self.name, observation))
                low, high = getattr(space, "low", 0), getattr(space, "high", 1)
                if (wrong := (values < low) | (values > high)).any():
                    return (
                        f"{self.name}: {part.what} has {values[wrong][0]:g}, outside of its space "
                        f"{short(space)}; correct the space"
                    )
        return ""

    def frame(self, observation: Any, info: dict[str, Any] | None = None) -> Frames:
        """Return the frame [H, W] of one observation; an info without a mask allows all actions."""
        allowed = None
        if self.is_masked and self.mask is None:
            allowed = self.does.allowed((info or {}).get(MASK))[None]
        frame: Frames = self.frames([observation], allowed)[0]
        return frame


def fit_of(name: str, observations: Space, actions: Space, observe: str = "") -> Fit:
    """Return how the spaces of one environment fit.

    Args:
        name: of the environment, for messages.
        observations: its observation space.
        actions: its action space.
        observe: keys of a dictionary that the agent sees, with commas; "" for all.

    Raises:
        ColobusError: if they do not; the message says why and what to do.
    """
    for what, given in (("observation", observations), ("action", actions)):
        if not isinstance(given, spaces.Space):
            kind = f"{type(given).__module__}.{type(given).__qualname__}"
            raise ColobusError(
                f"{name}: its {what}_space is {kind}, must be one of gymnasium.spaces; set it"
            )
    does = actions_of(name, actions)
    leaves = list(_leaves(observations, ()))
    masks = [Part(path[: path.index(MASK) + 1], space) for path, space in leaves if MASK in path]
    mask = masks[0] if masks else None
    wanted, left = _choice(name, leaves, observe)
    left = [each for each in left if MASK not in each.split(".")]
    notes = [does.note] if does.note else []
    if len(wanted) + len(left) > 1:
        seen = _list([written(path) for path, _ in wanted])
        notes.append(f"the agent observes {seen}{f', not {_list(left)}' if left else ''}")
    parts = [Part(path, space, _axes(space)) for path, space in wanted]
    boards = {part.board for part in parts if part.axes}
    if len(boards) > 1 and all(max(board) < LARGE for board in boards):
        parts, boards = [part._replace(axes=()) for part in parts], set()
        notes.append("its small pictures of several sizes are one vector")
    if len(boards) > 1:
        raise ColobusError(
            f"{name}: its observations are pictures of {len(boards)} sizes; choose some of one,"
            f" such as --observe {written(parts[0].path)}"
        )
    parts.sort(key=lambda part: not part.axes)
    numbers = sum(part.size for part in parts if not part.axes)
    if numbers > (MOST_PLANES if boards else MOST_NUMBERS):
        beside = ", and each would be a plane beside the picture" if boards else ""
        raise ColobusError(
            f"{name}: it observes {numbers:,} numbers{beside}; choose fewer by --observe, or {OWN}"
        )
    planes = sum(part.size for part in parts)
    notes += [said for part in parts if (said := _doubt(part))]
    if boards and numbers:
        notes.append(f"numbers are {numbers} further planes of the picture")
    whole = all(part.fits_bytes for part in parts)
    if not boards:
        whole = all(isinstance(p.space, spaces.Box) and p.space.dtype == np.uint8 for p in parts)
    height, width = next(iter(boards)) if boards else (1, planes)
    planes = planes if boards else 1
    return Fit(
        name,
        does,
        tuple(parts),
        planes,
        (planes * height, width),
        not boards,
        "uint8" if whole else "float32",
        f"{name}: {'; '.join(notes)}" if notes else "",
        mask,
        mask is not None,
    )


def _leaves(space: Space, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Space]]:
    """Yield what is in dictionaries and tuples, with the keys that lead there."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space
        return
    for key, each in space.items() if isinstance(space, spaces.Dict) else enumerate(space):
        yield from _leaves(each, (*path, key))


def _choice(
    name: str, leaves: list[tuple[tuple[Any, ...], Space]], observe: str
) -> tuple[list[tuple[tuple[Any, ...], Space]], list[str]]:
    """Return the arrays that the agent sees, and the names of the others.

    Raises:
        ColobusError: if there are none, or one is no array.
    """
    keys = [key.strip() for key in observe.split(",") if key.strip()]
    known = [written(path) for path, _ in leaves]
    for key in keys:
        if not any(_is_below(each, key) for each in known):
            has = f"it has {_list(known)}" if any(known) else "they are no dictionary"
            raise ColobusError(f"--observe {observe}: {name} has no observation {key!r}; {has}")
    chosen = [(path, space) for path, space in leaves if _is_seen(path, space, keys)]
    if not chosen:
        only = f"only {_list(known)}" if known else "nothing"
        raise ColobusError(f"{name}: it observes {only}; make numbers of it {OWN}")
    for path, space in chosen:
        if not isinstance(space, ARRAYS) or not math.prod(space.shape or ()):
            out = "leave it out by --observe, or " if path else ""
            raise ColobusError(
                f"{name}: {Part(path, space).what} is {short(space)}; Colobus takes Box, Discrete, "
                f"MultiDiscrete and MultiBinary: {out}make numbers of it {OWN}"
            )
    names = {written(path) for path, _ in chosen}
    return chosen, [each for each in known if each not in names]


def _is_seen(path: tuple[Any, ...], space: Space, keys: list[str]) -> bool:
    """Return whether the agent sees an array: one of these keys, or all but masks and texts."""
    if keys:
        return any(_is_below(written(path), key) for key in keys)
    is_text = isinstance(space, spaces.Text) or np.dtype(space.dtype or object).kind == "U"
    return not (path and (MASK in path or is_text))


def _is_below(path: str, key: str) -> bool:
    return path == key or path.startswith(f"{key}.")


def written(path: tuple[Any, ...]) -> str:
    """Return the keys that lead to an array as one text."""
    return ".".join(map(str, path))


def _axes(space: Space) -> tuple[int, ...]:
    """Return the axes of planes, height and width if a space has pictures; () for numbers.

    Two neighbouring axes of equal size are a board, and the third has its planes. Otherwise the
    planes are the smallest axis, if it is the first or last one, and else what leaves the board
    that is more of a square. A fourth axis before the others has pictures of several steps.
    """
    if not isinstance(space, spaces.Box):
        return ()
    shape = space.shape
    if len(shape) == 2:
        bounded = bool((np.abs(space.low) < 1e9).all() and (np.abs(space.high) < 1e9).all())
        return (0, 1) if bounded or space.dtype == np.uint8 else ()
    if len(shape) == 4:
        inner = _axes(spaces.Box(0, 1, shape[1:]))
        return (0, *(axis + 1 for axis in inner))
    if len(shape) != 3:
        return ()
    a, b, c = shape
    if (a == b) != (b == c):
        last = a == b
    elif min(a, c) < b and a != c:
        last = c < a
    else:
        last = max(a, b) * min(b, c) <= max(b, c) * min(a, b)
    return (2, 0, 1) if last else (0, 1, 2)


def _doubt(part: Part) -> str:
    """Return how a picture is read if its shape could be read otherwise, or ""."""
    shape, axes = part.shape, part.axes
    if len(axes) < 3:
        return ""
    planes = shape[axes[-3]]
    height, width = part.board
    square, few = height == width, planes < min(height, width)
    if (few and (planes <= 4 or square)) or (planes <= 4 and square):
        return ""
    return (
        f"its observation {list(shape)} is read as {planes} planes of {height}x{width}, channels "
        f"{'first' if axes[-3] < axes[-2] else 'last'}"
    )


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names))
