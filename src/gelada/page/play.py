"""The server of ``gelada play``: a game in the browser, guarded as the page of runs is.

The page asks for one picture after the other, and gets each as soon as it is there. With
``--human`` it also tells which keys are held down; nothing else can be changed.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gelada.core.errors import GeladaError
from gelada.page.live import LiveGame
from gelada.page.server import assets, guarded, page_routes, run_app

PAGE = "play.html"

FILES = (PAGE, "play.js", "play.css", "page.css", "util.js")
"""Files that the page consists of."""

KEYS = {"up", "down", "left", "right", "fire", *"0123456789"}
"""Keys that a game can be played with."""

MOST_BYTES = 1000
"""Of what the page tells about keys."""


def make_play_app(game: LiveGame, token: str, port: int, once: str = "") -> Starlette:
    """Return the application.

    Args:
        game: that it shows.
        token: that every request must bring.
        port: at which it listens.
        once: another token, good for one visit ("": there is none).
    """
    files = {name: data for name, data in assets().items() if name in FILES}

    async def about(_request: Request) -> Response:
        return JSONResponse(game.about)

    def picture(request: Request) -> Response:  # no coroutine: waits, on a thread
        after = request.query_params.get("after", "0")
        if not (after.isascii() and after.isdecimal() and len(after) < 16):
            return PlainTextResponse("after: must be a number", 400)
        try:
            found = game.picture(int(after))
        except GeladaError as error:
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
        except GeladaError as error:
            return PlainTextResponse(str(error), 403)
        return Response(status_code=204)

    routes = [
        *page_routes(PAGE, files, token, port),
        Route("/about", about),
        Route("/picture", picture),
        Route("/keys", keys, methods=["POST"]),
    ]
    return guarded(routes, token, port, once)


async def _said(request: Request) -> tuple[list[str], bool] | None:
    """Return the keys that are held and whether a person plays; None if the request has others."""
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal() and len(length) < 9):
        return None
    if int(length) > MOST_BYTES:
        return None
    try:
        said: Any = json.loads(await request.body())
        pressed, person = list(map(str, said["pressed"])), said["person"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = isinstance(person, bool) and KEYS.issuperset(pressed)
    return (pressed, person) if fits else None


def serve_game(game: LiveGame, token: str, listening: socket.socket, once: str = "") -> None:
    """Show the game until SIGINT or SIGTERM; see `make_play_app`."""
    game.start()
    try:
        run_app(make_play_app(game, token, listening.getsockname()[1], once), listening)
    finally:
        game.close()
