"""A game that an agent or a person plays live, and its server, ``colobus play``.

It is played at its own speed while somebody looks at it. The page is guarded as that of runs is: it
asks for one picture after the other, and gets each as soon as it is there. With ``--human`` it also
tells which keys are held down; nothing else can be changed.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds, generator
from colobus.core.types import Bytes
from colobus.evaluation.agent import Agent, PolicyName
from colobus.evaluation.films.player import AtariScreen, Player, make_screen
from colobus.evaluation.start_states import StartKeeper, check_kept
from colobus.page.server import assets, guarded, whole_number

NOTHING = ("NOOP", "STAY", "0")
"""Names of actions that do nothing; 0 is one of numbers, such as a force. A game without one does
its first action then."""


def action_of(pressed: Collection[str], names: Sequence[str]) -> int:
    """Return the action, an index into ``names``, that fits the keys best.

    Atari's actions are put together of directions and FIRE, such as UPRIGHTFIRE. In a game without
    up and down these keys are right and left, which move the paddle of Pong up and down. Where the
    actions are numbers, a digit chooses one.

    Args:
        pressed: of "up", "down", "left", "right", "fire" and the digits.
        names: of the game's actions.
    """
    held = {key.upper() for key in pressed}
    if not any(name.startswith(("UP", "DOWN")) for name in names):
        held |= {turned for key, turned in (("UP", "RIGHT"), ("DOWN", "LEFT")) if key in held}
    vertical = _one_of(held, "UP", "DOWN")
    horizontal = _one_of(held, "LEFT", "RIGHT")
    fire = "FIRE" if "FIRE" in held else ""
    wanted = (
        *sorted(pressed),  # a digit names an action, where they are numbers
        vertical + horizontal + fire,
        horizontal + fire,
        vertical + fire,
        vertical + horizontal,
        horizontal,
        vertical,
        fire,
        *NOTHING,
    )
    return next((names.index(name) for name in wanted if name in names), 0)


def _one_of(held: Collection[str], one: str, other: str) -> str:
    """Return the one of two opposite directions that is held; "" for none or both."""
    found = [key for key in (one, other) if key in held]
    return found[0] if len(found) == 1 else ""


ATARI_ZOOM = (3, 4)
"""An Atari's pixels are wider than high."""

ALONE = 2.0
"""Seconds without a question after which the game waits: nobody looks."""

PATIENCE = 1.0
"""Seconds that a question waits for a new picture."""

BEHIND = 0.25
"""Seconds of delay that are made up for; after a longer one the game goes on from now."""

PAUSE = 1.5
"""Seconds for which the end of a game is shown."""

NEWEST = 10
"""Scores of earlier games that are told."""


@dataclass(eq=False)
class LiveGame:
    """Plays games one after the other, on a thread of its own, until it is closed.

    The thread is the only one that plays; other threads ask for pictures and say which keys are
    held. All that they share is under one lock.

    Raises:
        ColobusError: if the environment has no pictures, or it is no Atari game or the file exists
            and start states are to be kept.
    """

    agent: Agent  # that plays
    seed: int = 1  # of the games and of sampled actions
    policy: PolicyName | None = None  # the agent's own by default
    human: bool = False  # whether a person may take over
    keep: Path | None = None
    """File for start states of the games that a person plays, which have no sticky actions then;
    None for no file."""

    def __post_init__(self) -> None:
        agent, seed, keep = self.agent, self.seed, self.keep
        settings = agent.games if keep is None else replace(agent.games, sticky=0.0)
        if keep is not None:
            check_kept(settings)
        self._screen = screen = make_screen(settings, int(game_seeds(seed, "play", 1)[0]))
        self.kept: StartKeeper | None = None
        if keep is not None and isinstance(screen, AtariScreen):
            self.kept = StartKeeper(keep, screen.game, settings, seed)
        self._player = Player(agent, screen, generator(seed, "play actions"), self.policy)
        self.about: dict[str, Any] = {
            "game": agent.games.game,
            "steps": agent.checkpoint.steps,
            "policy": self.policy or agent.policy,
            "actions": list(self._screen.action_names),
            "human": self.human,
        }
        self._shared = threading.Condition()
        self._closed = threading.Event()
        self._number = 0  # of the newest picture
        self._picture: Bytes | None = None
        self._facts: dict[str, Any] = {}
        self._asked = -ALONE  # time of the newest question
        self._pressed: frozenset[str] = frozenset()
        self._person = False  # whether a person plays
        self._scores: list[float] = []  # of the games that are over
        self._before = 0.0  # score of all games before this one
        self._due = 0.0  # time at which the next picture is shown
        self._coming: list[Bytes] = []
        self._error = ""
        self._thread = threading.Thread(target=self._play, name="game", daemon=True)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def close(self) -> None:
        """End the game and its thread."""
        self._closed.set()
        with self._shared:
            self._shared.notify_all()
        if self._thread.is_alive():
            self._thread.join(PATIENCE + PAUSE)
        if not self._thread.is_alive():
            self._screen.close()

    def press(self, pressed: Collection[str], person: bool) -> None:
        """Say which keys are held down, and whether a person plays.

        Raises:
            ColobusError: if no person may take over.
        """
        if not self.human:
            raise ColobusError("nobody may take over: colobus play was started without --human")
        with self._shared:
            self._pressed, self._person = frozenset(pressed), person

    def picture(self, after: int) -> tuple[bytes, dict[str, Any]] | None:
        """Return the newest picture as PNG, and facts about it; wait for one that is newer.

        The facts are ``number`` (of the picture), ``score``, ``steps`` and ``games`` so far, the
        ``action`` of the step, whether the game is ``over``, whether a ``person`` plays, and the
        ``scores`` of the games before.

        Args:
            after: number of a picture that the asking one has.

        Returns:
            None if there is no newer picture within a second.

        Raises:
            ColobusError: if the game has ended by an error.
        """
        with self._shared:
            self._asked = time.monotonic()
            self._shared.wait_for(
                lambda: self._number > after or self._error or self._closed.is_set(), PATIENCE
            )
            self._asked = time.monotonic()
            if self._error:
                raise ColobusError(self._error)
            if self._picture is None or self._number <= after:
                return None
            picture, facts = self._picture, self._facts
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG", compress_level=1)
        return file.getvalue(), facts

    def _play(self) -> None:
        """Play games until closed; what goes wrong is told to those who ask."""
        try:
            while not self._closed.is_set():
                self._play_one()
        except Exception as error:
            with self._shared:
                self._error = f"the game has ended: {type(error).__name__}: {error}"
                self._shared.notify_all()

    def _play_one(self) -> None:
        player = self._player
        self._before, first, said = player.score, player.steps, ""
        player.begin(self._coming.append)
        self._show(said, 0)
        while not player.over and self._somebody_looks():
            with self._shared:
                keys = self._pressed if self._person else None
            action = None if keys is None else action_of(keys, self._screen.action_names)
            if self.kept:
                self.kept.before(person=action is not None)
            player.step(self._coming.append, action)
            if self.kept and isinstance(self._screen, AtariScreen):
                self.kept.after(self._screen.played, player.over)
            said = "" if action is None else self._screen.action_names[action]
            self._show(said, player.steps - first)
        if player.over:
            with self._shared:
                self._scores = [*self._scores, player.score - self._before][-NEWEST:]
                self._tell(said, player.steps - first)
            self._closed.wait(PAUSE)

    def _show(self, action: str, steps: int) -> None:
        """Show the pictures that have come, each at its time."""
        for picture in self._coming:
            with self._shared:
                self._picture = picture
                self._tell(action, steps)
            self._due += 1.0 / self._screen.rate
            early = self._due - time.monotonic()
            if early > 0:
                self._closed.wait(early)
            elif early < -BEHIND:
                self._due = time.monotonic()
        self._coming.clear()

    def _tell(self, action: str, steps: int) -> None:
        """Count a picture, and wake those who wait for it. The lock is held."""
        assert self._picture is not None
        height, width, _ = self._picture.shape
        high, wide = self._screen.zoom or ATARI_ZOOM
        self._number += 1
        self._facts = {
            "number": self._number,
            "score": self._player.score - self._before,
            "steps": steps,
            "games": self._player.games,
            "action": action,
            "over": self._player.over,
            "person": self._person,
            "scores": self._scores,
            "size": (height * high, width * wide),  # in which it is shown
        }
        self._shared.notify_all()

    def _somebody_looks(self) -> bool:
        """Wait until somebody looks; return False once the game is closed."""
        while not self._closed.is_set():
            with self._shared:
                alone = time.monotonic() - self._asked > ALONE
            if not alone:
                return True
            self._closed.wait(0.05)
        return False


PAGE = "play.html"

FILES = (PAGE, "play.js", "page.css", "util.js")
"""Files that the page consists of."""

KEYS = {"up", "down", "left", "right", "fire", *"0123456789"}
"""Keys that a game can be played with."""

MOST_BYTES = 1000
"""Of what the page tells about keys."""


def make_play_app(game: LiveGame, token: str, port: int, once: str = "") -> Starlette:
    """Return the application that shows a game; see `colobus.page.server.make_app`."""
    files = {name: data for name, data in assets().items() if name in FILES}

    async def about(_request: Request) -> Response:
        return JSONResponse(game.about)

    def picture(request: Request) -> Response:  # no coroutine: waits, on a thread
        after = whole_number(request.query_params.get("after", "0"))
        if after is None:
            return PlainTextResponse("after: must be a number", 400)
        try:
            found = game.picture(after)
        except ColobusError as error:
            return PlainTextResponse(str(error), 500)
        if found is None:
            return Response(status_code=204)
        image, facts = found
        return Response(image, media_type="image/png", headers={"x-facts": json.dumps(facts)})

    async def keys(request: Request) -> Response:
        said = await _said(request)
        if said is None:
            return PlainTextResponse("keys: must be names of keys, and whether a person plays", 400)
        try:
            game.press(*said)
        except ColobusError as error:
            return PlainTextResponse(str(error), 403)
        return Response(status_code=204)

    routes = [
        Route("/about", about),
        Route("/picture", picture),
        Route("/keys", keys, methods=["POST"]),
    ]
    return guarded(PAGE, files, routes, token, port, once)


async def _said(request: Request) -> tuple[list[str], bool] | None:
    """Return the keys that are held and whether a person plays; None if the request has others."""
    length = whole_number(request.headers.get("content-length", ""))
    if length is None or length > MOST_BYTES:
        return None
    try:
        said: Any = json.loads(await request.body())
        pressed, person = list(map(str, said["pressed"])), said["person"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = isinstance(person, bool) and KEYS.issuperset(pressed)
    return (pressed, person) if fits else None
