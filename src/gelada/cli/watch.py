"""The live page, at a link that only this user has.

``gelada watch`` shows runs side by side while they learn and afterwards; with ``gelada play`` an
agent plays, and a person may take over.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gelada.cli.evaluate import AgentFlags, find_checkpoint
from gelada.cli.flags import parse
from gelada.core.errors import GeladaError
from gelada.core.fields import Range
from gelada.runtime.system import lower_priority


def show_link(listening: socket.socket, host: str, token: str, once: str) -> None:
    """Print the link to the page, which has its token, and open the page if asked.

    Args:
        listening: socket of the page.
        host: that the link names.
        token: of the page.
        once: a token for one visit, for the browser that is opened; "" to open none.
    """
    link = f"http://{host}:{listening.getsockname()[1]}/?token="
    sys.stdout.write(f"{link}{token}\nCtrl-C ends it\n")
    sys.stdout.flush()
    if once:
        import webbrowser

        webbrowser.open(link + once)


NICER = 5
"""What niceness is raised by: the runs that are watched go first. With the lowest priority the
first view of many runs would take seconds beside a training that has all cores busy."""


@dataclass(frozen=True)
class Watch:
    """Show runs in the browser, side by side, while they learn and afterwards."""

    runs: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ...")]] = (
        Path("runs"),
    )
    """Runs, or folders with runs below them; new runs appear by themselves."""
    port: Annotated[int, Range(0, 65535)] = 0
    """Port to listen at, on this machine only (0: any that is free)."""
    open: bool = False
    """Open the page in the browser."""


def main(args: Sequence[str]) -> int:
    """Run the command until Ctrl-C; return its exit code."""
    flags = parse(Watch, "watch", args)
    from gelada.page.view import PageView
    from gelada.runs.listing import Runs, check_places

    check_places(flags.runs)
    try:
        from gelada.page.server import HOST, listen, new_token, serve
    except ImportError as error:
        raise GeladaError(
            f"gelada watch: {error}; install what it needs with: pip install 'gelada-rl[page]'"
        ) from None
    lower_priority(NICER)
    token, once = new_token(), new_token() if flags.open else ""
    with listen(flags.port) as listening:
        show_link(listening, HOST, token, once)
        view = PageView(Runs(flags.runs))
        threading.Thread(target=view.look, args=(0, ())).start()  # read before the link is opened
        serve(view, token, listening, once)
    return 0


@dataclass(frozen=True)
class Play(AgentFlags):
    """Show a trained agent in the browser as it plays, game after game."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent, or zoo:NAME."""
    human: bool = False
    """Let a person take over with the keyboard: arrows and space, or digits."""
    port: Annotated[int, Range(0, 65535)] = 0
    """Port to listen at, on this machine only (0: any that is free)."""
    open: bool = False
    """Open the page in the browser."""


def play(args: Sequence[str]) -> int:
    """Run the command until Ctrl-C; return its exit code."""
    flags = parse(Play, "play", args)
    from gelada.evaluation.zoo import place_of

    source = find_checkpoint(place_of(flags.run), flags.checkpoint)
    try:
        from gelada.page.live import serve_game
        from gelada.page.server import HOST, listen, new_token
    except ImportError as error:
        raise GeladaError(
            f"gelada play: {error}; install what it needs with: pip install 'gelada-rl[page]'"
        ) from None
    from gelada.evaluation.agent import load
    from gelada.page.live import LiveGame

    game = LiveGame(load(source), flags.seed, flags.policy, flags.human)
    token, once = new_token(), new_token() if flags.open else ""
    with listen(flags.port) as listening:
        show_link(listening, HOST, token, once)
        serve_game(game, token, listening, once)
    return 0
