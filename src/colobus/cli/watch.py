"""The live page, at a link that only this user has.

``colobus watch`` shows runs side by side while they learn and afterwards; with ``colobus play`` an
agent plays, and a person may take over.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from colobus.cli.evaluate import AgentFlags, check_source
from colobus.cli.flags import RunPath, RunPaths, parse
from colobus.core.errors import not_installed, program, quoted
from colobus.core.fields import OnlyWith, Range
from colobus.runtime.system import lower_priority


def server_for(command: str) -> ModuleType:
    """Return the module that serves pages.

    Raises:
        ColobusError: if its libraries are not installed.
    """
    try:
        import colobus.page.server as server
    except ImportError as error:
        raise not_installed(f"colobus {command}", error, "page") from None
    return server


def show(server: Any, flags: Watch | Play, make_app: Callable[..., Any]) -> None:
    """Print the link to a page, open the page if asked, and answer requests until Ctrl-C.

    The application is made from the page's token, its port, and a token for one visit, for the
    browser that is opened. ``server`` is the module that serves pages.
    """
    token, once = server.new_token(), server.new_token() if flags.open else ""
    with server.listen(flags.port) as listening:
        port = listening.getsockname()[1]
        link = f"http://{server.HOST}:{port}/?token="
        sys.stdout.write(f"{link}{token}\nCtrl-C ends it\n")
        sys.stdout.flush()
        if once:
            import webbrowser

            webbrowser.open(link + once)
        server.PageServer(make_app(token, port, once)).run(sockets=[listening])


NICER = 5
"""What niceness is raised by: the runs that are watched go first. With the lowest priority the
first view of many runs would take seconds beside a training that has all cores busy."""


@dataclass(frozen=True)
class Watch:
    """Show runs in the browser, side by side, while they learn and afterwards."""

    runs: RunPaths = (Path("runs"),)
    """Runs, or folders with runs below them; new runs appear by themselves."""
    port: Annotated[int, Range(0, 65535)] = 0
    """Port to listen at, on this machine only (0: any that is free)."""
    open: bool = False
    """Open the page in the browser."""


def main(args: Sequence[str]) -> int:
    """Run the command until Ctrl-C; return its exit code."""
    flags = parse(Watch, "watch", args)
    from colobus.page.view import PageView
    from colobus.runs.listing import Runs, check_places

    check_places(flags.runs)
    server = server_for("watch")
    lower_priority(NICER)
    view = PageView(Runs(flags.runs))

    def make_app(*page: Any) -> Any:
        threading.Thread(target=view.look, args=(0, ())).start()  # read before the link is opened
        return server.make_app(view, *page)

    show(server, flags, make_app)
    return 0


@dataclass(frozen=True)
class Play(AgentFlags):
    """Show a trained agent in the browser as it plays, game after game."""

    run: RunPath
    """Folder of the run or of an exported agent, or zoo:NAME."""
    human: bool = False
    """Let a person take over with the keyboard: arrows and space, or digits."""
    keep: Annotated[Path | None, OnlyWith("with --human", lambda flags: flags.human)] = None
    """With --human: new file for start states of what the person plays, one after each 30 to 60
    seconds, for colobus eval --starts."""
    port: Annotated[int, Range(0, 65535)] = 0
    """Port to listen at, on this machine only (0: any that is free)."""
    open: bool = False
    """Open the page in the browser."""


def play(args: Sequence[str]) -> int:
    """Run the command until Ctrl-C; return its exit code."""
    flags = parse(Play, "play", args)
    source = check_source(flags.run)
    server = server_for("play")
    from colobus.evaluation.agent import load
    from colobus.page.live import LiveGame, make_play_app

    agent = load(source, checkpoint=flags.checkpoint, device=flags.device)
    game = LiveGame(agent, flags.seed, flags.policy, flags.human, flags.keep)
    game.start()
    try:
        show(server, flags, partial(make_play_app, game))
    finally:
        game.close()
        if flags.keep and (kept := game.kept):  # Ctrl-C, the only end there is, goes on as an error
            again = f"play from them: {program()} eval RUN --starts {quoted(str(flags.keep))}"
            some = f"{kept.count} start states; {again}" if kept.count else "no start states"
            sys.stdout.write(f"{flags.keep}: {some}\n")
    return 0
