"""The link to a page of this machine: printed, and opened in the browser if asked."""

from __future__ import annotations

import socket
import sys


def show_link(listening: socket.socket, host: str, token: str, opened: bool) -> None:
    """Print the link to the page, which has its token; open it in the browser if ``opened``."""
    link = f"http://{host}:{listening.getsockname()[1]}/?token={token}"
    sys.stdout.write(f"{link}\nCtrl-C ends it\n")
    sys.stdout.flush()
    if opened:
        import webbrowser

        webbrowser.open(link)
