"""How this program is started from where its reader is."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "colobus"


def program() -> str:
    """Return how a command begins that the reader of a message can copy.

    It is ``colobus`` if a shell finds this program by that name. Else it is the path by which the
    program was started, or that of the program beside this Python, such as ``.venv/bin/colobus``.
    After ``python -m colobus`` it begins like that.
    """
    started = Path(sys.argv[0] if sys.argv else "")
    if started.parts[-2:] == (NAME, "__main__.py"):
        return f"{Path(sys.executable).name} -m {NAME}"
    own = started if started.name == NAME else Path(sys.executable).parent / NAME
    if not own.is_file():  # the package is used without being installed
        return NAME
    found = shutil.which(NAME)
    if found and Path(found).samefile(own):
        return NAME
    here = Path.cwd()
    path = own.relative_to(here) if own.is_relative_to(here) else own
    return shlex.quote(str(path) if path.parent.name else os.path.join(".", path))
