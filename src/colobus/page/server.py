"""The server of the live page: read-only, for this machine alone, with a token in its address.

Who may read:

* It listens on 127.0.0.1, and answers only requests whose ``Host`` is that or localhost. So another
  web site cannot reach it by a name that it lets point to 127.0.0.1 (DNS rebinding).
* Every address needs the token, once in the address and from then on in a cookie. Other users of
  the machine do not have it. A browser sends cookies to all servers of one machine, whatever their
  port, so it should not be used for pages of servers that other users run on this machine.
* A browser that is opened gets a link that is good for one visit, as the list of processes shows
  it.
* A page of another server cannot make the browser ask for anything here (``Origin``).
* Only the page's own scripts run, and the page asks nobody else for anything
  (``Content-Security-Policy``).
* Files are never named by their paths: films and the page's own files are looked up in lists.
* Whoever only holds connections open shuts nobody out, and fills no log: see `Connection`.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from colobus.core.errors import ColobusError
from colobus.page.view import PageView

HOST = "127.0.0.1"
"""Where it listens: other machines cannot reach it. Elsewhere it is read through ssh -L."""

NAMES = (HOST, "localhost")
"""What a browser may call this machine."""

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

MOST_COLUMNS = 200
"""Columns that one request gets; the page asks for no more (page.js)."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer, refusals included."""


def make_app(view: PageView, token: str, port: int, once: str = "") -> Starlette:
    """Return the application.

    Args:
        view: what it shows.
        token: that every request must bring.
        port: at which it listens; cookies are the same for all ports, so it is in the cookie's
            name.
        once: another token, good for one visit ("": there is none).
    """

    def look(request: Request) -> Response:  # no coroutine: reads files, on a thread
        after = whole_number(request.query_params.get("after", "0"))
        columns = request.query_params.get("columns", "").split(",")[:MOST_COLUMNS]
        if after is None:
            return PlainTextResponse("after: must be a number", 400)
        found = view.look(after, [name for name in columns if name])
        text = json.dumps(found, allow_nan=False, separators=(",", ":"))
        return Response(text, media_type="application/json")  # ASCII, whatever folders are called

    def film(request: Request) -> Response:
        path = view.film(request.path_params["run"], request.path_params["name"])
        if path is None or not path.is_file() or path.is_symlink():
            return PlainTextResponse("there is no such film", 404)
        return FileResponse(path)

    routes = [Route("/look", look), Route("/films/{run}/{name}", film)]
    return guarded("index.html", assets(), routes, token, port, once)


def whole_number(text: str) -> int | None:
    """Return a number of a request, of at most 15 digits; None if it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def guarded(
    home: str, files: Mapping[str, bytes], routes: Sequence[Route], token: str, port: int, once: str
) -> Starlette:
    """Return an application that answers only those who may read; see `make_app`.

    Whoever opens the link gets a cookie with the file ``home``; ``routes`` are of what the page
    asks for beside its ``files``.
    """

    async def first(request: Request) -> Response:
        answer = Response(files[home], media_type=TYPES[".html"])
        if "token" in request.query_params:
            answer.set_cookie(cookie_name(port), token, httponly=True, samesite="strict", path="/")
        return answer

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return PlainTextResponse("there is no such file", 404)
        return Response(files[name], media_type=TYPES[f".{name.rpartition('.')[2]}"])

    return Starlette(
        routes=[Route("/", first), Route("/assets/{name}", asset), *routes],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[*NAMES], www_redirect=False),
            Middleware(WithToken, token=token, cookie=cookie_name(port), once=once),
        ],
    )


class WithToken:
    """Refuses every request without the token, before anything is looked up."""

    def __init__(self, app: ASGIApp, token: str, cookie: str, once: str) -> None:
        self._app, self._token, self._cookie, self._once = app, token, cookie, once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request on: nothing but requests come, see `PageServer`."""
        answer = self._app
        if not self._may(Request(scope)):
            said = "403: open the link that the command printed; it has the token of this page\n"
            answer = PlainTextResponse(said, 403)
        await answer(scope, receive, send)

    def _may(self, request: Request) -> bool:
        own = f"http://{request.headers.get('host', '')}"
        if request.headers.get("origin", own) != own:
            return False
        asked, kept = request.query_params.get("token", ""), request.cookies.get(self._cookie, "")
        if _same(asked, self._token) or _same(kept, self._token):
            return True
        if not self._once or not _same(asked, self._once):
            return False
        self._once = ""
        return True


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), token.encode())


def cookie_name(port: int) -> str:
    """Return the name of the cookie of the server at a port."""
    return f"colobus-{port}"


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def assets() -> dict[str, bytes]:
    """Return the page's own files by name, and those of the chart library."""
    own = resources.files("colobus.page") / "assets"
    return {
        file.name: file.read_bytes()
        for file in own.iterdir()
        if f".{file.name.rpartition('.')[2]}" in TYPES
    }


def listen(port: int) -> socket.socket:
    """Return a socket that listens at ``port`` (0: any that is free).

    Raises:
        ColobusError: if another program listens there, or the port may not be used.
    """
    try:
        return socket.create_server((HOST, port), backlog=64)
    except OSError as error:
        why = os.strerror(error.errno or 0)  # its own text repeats the address
        raise ColobusError(
            f"--port {port}: cannot listen there: {why}; leave it out for a free one"
        ) from None


MOST_CONNECTIONS = 64
"""Connections at a time. A browser has six, and some systems let a process open 256 files only."""

AT_ONCE = 16
"""Connections that are accepted at a time; up to three times as many before one is looked at."""

WAITING = 4096
"""Connections that the system may let wait until they are accepted; it may allow fewer."""

PATIENCE = 10.0
"""Seconds from a connection's beginning, or from its last answer, until all of a request is there.
Twice as long as a connection without any byte of a next request is kept."""


class Connection(H11Protocol):
    """A connection that is closed when it asks for nothing.

    It has `PATIENCE` seconds for each request. When there are more than `MOST_CONNECTIONS`, the one
    that has asked for nothing for the longest time is closed (where all are being answered, the
    oldest), so that the owner is answered however many others only hold connections open.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(PATIENCE, self._look)
        if len(self.connections) > MOST_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, Connection)]
            others.remove(self)
            min(others, key=lambda one: (one.is_answered, one._since)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    @property
    def is_answered(self) -> bool:
        """Whether all of a request has come, and the answer is under way."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def drop(self) -> None:
        """Close the connection without a word."""
        self.connections.discard(self)
        self.transport.abort()

    def _look(self) -> None:
        left = self._since + PATIENCE - self.loop.time()
        if left <= 0 and not self.is_answered:
            self.drop()
        else:
            self._timer = self.loop.call_later(max(left, 1.0), self._look)


class PageServer(uvicorn.Server):
    """Answers the requests for an application; others' mistakes are not told on stderr."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_level="error",
                access_log=False,
                headers=[*HEADERS.items()],
                server_header=False,
                date_header=False,
                backlog=AT_ONCE,
                timeout_graceful_shutdown=1,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        asyncio.get_running_loop().set_exception_handler(_say_unless_of_a_socket)
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(WAITING)


def _say_unless_of_a_socket(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)
