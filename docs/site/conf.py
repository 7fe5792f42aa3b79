"""How Sphinx makes the site (`make docs`): the pages as they stand here, and a reference.

The source folder is that of the whole project, so that links between pages, and to source files
and results, mean the same on the site as in a clone. Source files become downloads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
from pathlib import Path
from typing import Any, get_type_hints
from unittest import mock

import colobus
from colobus.cli import main as cli

ROOT = Path(__file__).resolve().parents[2]

project = "Colobus"
author = "The Colobus authors"
project_copyright = author
release = colobus.__version__

root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "examples/README.md",
    "benchmarks/results/README.md",
    "zoo/README.md",
    "zoo/*/*.md",
]
exclude_patterns = [
    *(".*", "build", "dist", "runs", "src", "tests", "**/__pycache__"),
    *("benchmarks/runs", "benchmarks/peers", "benchmarks/results/logs"),
]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
default_role = "py:obj"  # of docstrings: `Name` is a name in the code
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Colobus {release}"
html_copy_source = False

CONTENTS = {
    "Tutorial": ["tutorial", "../examples/README"],
    "How to": [
        *("install", "python", "extending", "running", "evaluation", "watching", "exporting"),
        *("sweeps", "tracking", "clusters", "devices"),
    ],
    "Explanation": [
        *("circle", "one-frame", "recipe", "appo", "dba3c", "gorila", "reuse", "autoencoder"),
        *("speed", "internet"),
    ],
    "Reference": ["settings", "site/flags", "site/reference", "files", "atari"],
    "Results": ["results", "recipe-search"],
    "Project": [
        *("dependencies", "../benchmarks/results/README", "../CHANGELOG", "../CONTRIBUTING"),
    ],
}
"""The contents at the left, by kind of page: paths from docs/. Those in results/ and in the zoo
follow below "Results"; any other page has to be named here, or Sphinx warns."""


def contents() -> dict[str, list[str]]:
    """Return the pages of each heading as Sphinx names them: paths without suffixes."""
    rest = [f"results/{path.stem}" for path in sorted((ROOT / "docs/results").glob("*.md"))]
    zoo = sorted((ROOT / "zoo").glob("**/*.md"))
    rest += [f"../{path.relative_to(ROOT).with_suffix('')}" for path in zoo]
    wanted = {**CONTENTS, "Results": [*CONTENTS["Results"], *rest]}
    return {
        caption: [f"docs/{name}".replace("docs/../", "") for name in pages]
        for caption, pages in wanted.items()
    }


LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)\)")
EXAMPLE = re.compile(r"^\[`examples/[\w.]+`\]\((\S+)\)$", re.MULTILINE)
"""A line that is nothing but a link to an example: the example is shown below it. A forge shows the
link alone, so a script stands in its file only."""

LANGUAGES = {".py": "python", ".sh": "bash"}


def show_example(link: re.Match[str]) -> str:
    """Return the link with the file below it; a notebook is for programs that show it."""
    if link[1].endswith(".ipynb"):
        return link[0]
    language = LANGUAGES[Path(link[1]).suffix]
    return f"{link[0]}\n\n```{{literalinclude}} {link[1]}\n:language: {language}\n```"


def help_of(*words: str) -> str:
    """Return what a command prints with --help-all, in lines of 100."""
    with mock.patch.dict(os.environ, COLUMNS="100"), io.StringIO() as printed:
        with contextlib.redirect_stdout(printed):
            assert cli.run([*words, "--help-all"]) == 0
        return printed.getvalue()


def flags() -> str:
    """Return the help of all commands, and the settings in which families of algorithms differ."""
    said = [f"## colobus {name}\n\n```text\n{help_of(name)}```\n" for name in cli.COMMANDS]
    for name in ("dqn-pong", "iqn-pong", "dba3c-pong", "pqn-pong"):
        own = re.findall(OWN, help_of("train", name), re.M | re.S)
        said.append(f"## colobus train {name}\n\n```text\n" + "\n".join(own) + "\n```\n")
    return "\n".join(said)


OWN = r"^╭─ (?:algorithm|replay) options ─.*?^╰\S+$"
"""The groups of settings that differ from algorithm to algorithm, in a help."""


def prepare(_app: Any, docname: str, source: list[str]) -> None:
    """Add the contents to the first page, the flags to theirs, and examples where they are named.

    Links to folders are shown as their text: the site has no folders to look into.

    Args:
        docname: path of the page without its suffix.
        source: [text of the page], which is changed.
    """
    folder = (ROOT / docname).parent
    source[0] = LINK.sub(
        lambda link: link[1] if (folder / link[2]).is_dir() else link[0], source[0]
    )
    source[0] = EXAMPLE.sub(show_example, source[0])
    if docname == "docs/site/flags":
        source[0] += flags()
    if docname == root_doc:
        for caption, pages in contents().items():
            names = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"


def add_index(app: Any, error: Exception | None) -> None:
    """Let the folder open on the first page, which is called as on a forge: README."""
    if error is None:
        to = f"{root_doc}.html"
        line = f'<!doctype html><meta http-equiv="refresh" content="0; url={to}">'
        text = f'{line}<title>Colobus</title><a href="{to}">Colobus</a>\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def is_settings(kind: Any) -> bool:
    """Return whether it is a dataclass that has a default for every field."""
    return dataclasses.is_dataclass(kind) and all(
        field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        for field in dataclasses.fields(kind)
    )


for public in colobus.__all__:
    if is_settings(getattr(colobus, public)):  # types without the ranges beside them
        with contextlib.suppress(NameError):
            getattr(colobus, public).__annotations__ = get_type_hints(getattr(colobus, public))


def leave_out_signature(
    _app: Any, what: str, _name: str, kind: Any, *_: Any
) -> tuple[str, None] | None:
    """Show no arguments of settings, which have up to forty: each stands below with its text."""
    return ("", None) if what == "class" and is_settings(kind) else None


def leave_out_member(_app: Any, _what: str, _name: str, value: Any, *_: Any) -> bool | None:
    """Leave out what Python itself says of the fields of a named tuple."""
    return True if str(value.__doc__).startswith("Alias for field number") else None


TEXTS: dict[str, list[str]] = {}
"""Docstrings of fields and properties. Napoleon takes "Share: of what" for a type and a text."""


def keep_text(
    _app: Any, what: str, name: str, _value: Any, _options: Any, lines: list[str]
) -> None:
    """Remember a docstring before Napoleon changes it."""
    if what in ("attribute", "property"):
        TEXTS[name] = list(lines)


def restore_text(_app: Any, _w: str, name: str, _v: Any, _options: Any, lines: list[str]) -> None:
    """Undo what Napoleon did to it."""
    lines[:] = TEXTS.pop(name, lines)


def setup(app: Any) -> None:
    """Connect all of them with Sphinx."""
    app.connect("source-read", prepare)
    app.connect("build-finished", add_index)
    app.connect("autodoc-process-signature", leave_out_signature)
    app.connect("autodoc-skip-member", leave_out_member)
    app.connect("autodoc-process-docstring", keep_text, priority=400)  # Napoleon has 500
    app.connect("autodoc-process-docstring", restore_text, priority=600)
