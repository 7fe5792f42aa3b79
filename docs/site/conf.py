"""How Sphinx makes the site (`make docs`): the pages as they stand here, and a reference.

The source folder is that of the whole project, so that links between pages, and to source files
and results, mean the same on the site as in a clone. Source files become downloads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any, get_type_hints

import gelada

ROOT = Path(__file__).resolve().parents[2]

project = "Gelada"
author = "The Gelada authors"
project_copyright = author
release = gelada.__version__

root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/site/*.md",
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
html_title = f"Gelada {release}"
html_copy_source = False

CONTENTS = {
    "Use": [
        "install",
        "python",
        "running",
        "recipe",
        "evaluation",
        "atari",
        "watching",
        "exporting",
    ],
    "More": ["sweeps", "tracking", "clusters", "devices", "reuse", "autoencoder", "speed"],
    "Algorithms": ["appo", "dba3c", "gorila"],
    "Read the code": ["circle", "one-frame", "extending", "site/reference"],
    "Project": [
        *("results", "dependencies"),
        *("../benchmarks/results/README", "../CHANGELOG", "../CONTRIBUTING"),
    ],
}
"""The contents at the left, by heading: paths from docs/. Other pages are below "More"."""


def contents() -> dict[str, list[str]]:
    """Return the pages of each heading as Sphinx names them: paths without suffixes."""
    named = {name for pages in CONTENTS.values() for name in pages}
    rest = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem not in named)
    zoo = sorted((ROOT / "zoo").glob("**/*.md"))
    rest += [f"../{path.relative_to(ROOT).with_suffix('')}" for path in zoo]
    wanted = {**CONTENTS, "More": [*CONTENTS["More"], *rest]}
    return {
        caption: [f"docs/{name}".replace("docs/../", "") for name in pages]
        for caption, pages in wanted.items()
    }


LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)\)")


def prepare(_app: Any, docname: str, source: list[str]) -> None:
    """Add the contents to the first page; show links to folders as their text.

    The site has no folders to look into.

    Args:
        docname: path of the page without its suffix.
        source: [text of the page], which is changed.
    """
    folder = (ROOT / docname).parent
    source[0] = LINK.sub(
        lambda link: link[1] if (folder / link[2]).is_dir() else link[0], source[0]
    )
    if docname == root_doc:
        for caption, pages in contents().items():
            names = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{names}\n```\n"


def add_index(app: Any, error: Exception | None) -> None:
    """Let the folder open on the first page, which is called as on a forge: README."""
    if error is None:
        to = f"{root_doc}.html"
        line = f'<!doctype html><meta http-equiv="refresh" content="0; url={to}">'
        text = f'{line}<title>Gelada</title><a href="{to}">Gelada</a>\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def is_settings(kind: Any) -> bool:
    """Return whether it is a dataclass that has a default for every field."""
    return dataclasses.is_dataclass(kind) and all(
        field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        for field in dataclasses.fields(kind)
    )


for public in gelada.__all__:
    if is_settings(getattr(gelada, public)):  # types without the ranges beside them
        with contextlib.suppress(NameError):
            getattr(gelada, public).__annotations__ = get_type_hints(getattr(gelada, public))


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
