"""``gelada watch``: runs side by side in the browser, while they learn and afterwards."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gelada.cli.flags import parse
from gelada.cli.links import show_link
from gelada.core.errors import GeladaError
from gelada.core.settings import Range
from gelada.runtime.system import lower_priority

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
    from gelada.page.runs import Runs, check_places
    from gelada.page.view import View

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
        view = View(Runs(flags.runs))
        threading.Thread(target=view.look, args=(0, ())).start()  # read before the link is opened
        serve(view, token, listening, once)
    return 0
