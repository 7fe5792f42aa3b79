"""Other names of settings: of other libraries and of older versions, in flags and config.json."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection
from functools import cache


@cache
def others(kind: str) -> dict[str, tuple[str, str]]:
    """Return ours for each name in Stable-Baselines3, RLlib, CleanRL and others, and what differs.

    ``data/other_names.csv`` has a row for names that mean the same: those of settings with
    underscores, all in lower case, and flags and programs that are gone.

    Args:
        kind: "setting" (ours are several, or none and a note only), "command", "algorithm" (ours is
            a family of presets) or "attribute" of the module.
    """
    from importlib import resources  # only after a mistake

    text = resources.files("colobus").joinpath("data", "other_names.csv").read_text("utf-8")
    rows = (row for row in csv.DictReader(text.splitlines()) if row["kind"] == kind)
    return {name: (row["ours"], row["note"]) for row in rows for name in row["theirs"].split()}


RENAMED = {"graphs": "cuda_graphs"}
"""Names of flags and arguments in version 0.1 and 0.2, and those of today."""

GROUPS_OF_1 = {"memory": "replay", "beside": "sidecars"}
"""Names of groups in a config.json of format 1, and those of today."""

SETTINGS_OF_1 = {
    "shape": {"bundles": "workers", "stores": "replays"},
    "algorithm": {"passes": "epochs"},
}
"""Names of settings in format 1 by today's group, and those of today."""


def renamed(word: str) -> str:
    """Return a flag by today's name, such as ``--no-cuda-graphs`` for ``--no-graphs``."""
    flag, equals, value = word.partition("=")
    no = "--no-" if flag.startswith("--no-") else "--"
    name = flag.removeprefix(no).replace("-", "_")
    if not flag.startswith("--") or name not in RENAMED:
        return word
    return no + RENAMED[name].replace("_", "-") + equals + value


def hint(name: str, shown: Callable[[str], str], known: Collection[str]) -> str:
    """Return what a setting of another library is called here; "" if that is not known.

    Args:
        name: as it was given: a flag or an argument, with dashes or underscores.
        shown: returns how one of our settings is written, such as its flag.
        known: what can be given where the name was given, written like that.
    """
    found = others("setting").get(name.strip("-").replace("-", "_").lower())
    if found is None:
        return ""
    names = [shown(own) for own in found[0].split()]
    fits = not names or bool(set(names) & set(known))
    if not fits and shown("lr") not in known:
        return ""  # of a command that trains nothing
    note = re.sub(r"\{(\w+)\}", lambda own: shown(own[1]), found[1])
    if not names:
        return note
    if not fits:
        of_train = {shown(own) for own in ("out", "name", "resume", "cores", "seeds", "track")}
        note = "of colobus train" if set(names) <= of_train else note or "with another algorithm"
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"here it is {listed}{f' ({note})' if note else ''}"


def command_hint(word: str) -> str:
    """Return our command for a word of another program; "" if it is none."""
    ours, _ = others("command").get(word.lower(), ("", ""))
    return f"the command here is {ours}" if ours else ""


def attribute_hint(name: str) -> str:
    """Return our way to an attribute of another library's module; "" if it is none."""
    ours, _ = others("attribute").get(name.lower(), ("", ""))
    return f"; here it is {ours}" if ours else ""


def algorithm_hint(name: str) -> str:
    """Return what comes near an algorithm that is not here; "" if the name is of none.

    Args:
        name: of an algorithm, such as ``sac``, or of one with a game, such as ``qr-dqn-pong``.
    """
    ends = [found.start() for found in re.finditer(r"[-_ ]|$", name)]
    for end in reversed(ends):
        family, title = others("algorithm").get(re.sub(r"[-_ ]", "", name[:end]).lower(), ("", ""))
        if title:
            near = f"; {title} is, as in {family}-{name[end + 1 :] or 'pong'}"
            return f"{name[:end].lower()} is not here{near if family else title}"
    return ""
