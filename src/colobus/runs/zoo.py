"""The zoo: trained agents in the folder ``zoo`` of a clone, named ``zoo:pong``."""

from __future__ import annotations

from pathlib import Path

from colobus.core.errors import ColobusError, nearest
from colobus.runs.folder import runs_in

PREFIX = "zoo:"

CLONE = Path(__file__).resolve().parents[3]
"""Root of the clone that the package was installed from, if it was (``pip install -e``)."""


def place_of(run: Path) -> Path:
    """Return the folder that is named: that of an agent of the zoo, or ``run`` itself.

    The zoo is looked for in the clone that this package is part of, then in the working folder.

    Raises:
        ColobusError: if there is no zoo here, or it has no such agent.
    """
    said = str(run)
    if not said.startswith(PREFIX):
        return run
    name = said.removeprefix(PREFIX)
    for zoo in (CLONE / "zoo", Path("zoo")):
        names = [run.name for run in runs_in(zoo)]
        if name in names:
            return zoo / name
        if names:
            raise ColobusError(f"{said}: there is no such agent in {zoo}; {nearest(name, names)}")
    raise ColobusError(
        f"{said}: the zoo is not here, only clones of Colobus's repository have it, in their "
        "folder zoo; name the folder of an agent instead"
    )
