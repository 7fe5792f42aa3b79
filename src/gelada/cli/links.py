"""The link to a page of this machine: printed, and opened in the browser if asked."""

from __future__ import annotations

import socket
import sys


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
