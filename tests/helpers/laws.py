"""Laws about the size and the shape of the source, as `make check` asks for them.

``python tests/helpers/laws.py`` prints each breach in a line. Budgets and exceptions stand in
pyproject.toml, below ``tool.colobus.laws``: raising a budget, or adding an exception, is a commit
of its own with the reason. An exception that nothing needs any more is a breach too. What imports
what is for import-linter to say.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "colobus"
SMALL = 60
"""Lines, below which a module needs two importers."""

FILES_OF_A_RUN = (
    "config.json",
    "metrics.jsonl",
    "episodes.jsonl",
    "events.jsonl",
    "evaluation.json",
    "checkpoints",
    "reconstruction.png",
)
"""Names that only the room which reads and writes runs may spell out."""


class Source:
    """All modules of the package: their text and what they define, import and mention.

    Args:
        folder: of the package.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts = {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*.py"))
        }
        self.trees = {file: ast.parse(text) for file, text in self.texts.items()}

    @cached_property
    def lines(self) -> dict[str, int]:
        """Lines of each file."""
        return {file: len(text.splitlines()) for file, text in self.texts.items()}

    @cached_property
    def rooms(self) -> Counter[str]:
        """Lines of each room; those of loose files are the room ``.``."""
        found: Counter[str] = Counter()
        for file, lines in self.lines.items():
            room, slash, _ = file.partition("/")
            found[room if slash else "."] += lines
        return found

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """For each file those that import it."""
        found: dict[str, set[str]] = defaultdict(set)
        for file, tree in self.trees.items():
            for name in _imported(tree):
                for known in (f"{name}.py", f"{name}/__init__.py"):
                    if known in self.texts and known != file:
                        found[known].add(file)
        return found

    def definitions(self, *kinds: type[ast.ClassDef | ast.FunctionDef]) -> dict[str, list[str]]:
        """For each public class or function at the top of a module the files with it."""
        found: dict[str, list[str]] = defaultdict(list)
        for file, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, kinds) and node.name[0] != "_":
                    found[node.name].append(file)
        return found

    @cached_property
    def mentions(self) -> Counter[str]:
        """How often each identifier is used; a definition and an import are no use of it."""
        found: Counter[str] = Counter()
        for tree in self.trees.values():
            for node in ast.walk(tree):
                match node:
                    case ast.Name(id=name) | ast.Attribute(attr=name):
                        found[name] += 1
                    case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.]+:?\w*", text):
                        found.update(re.split(r"[.:]", text))  # names in tables
        return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules and names of the package that a module imports, as paths."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            package, _, rest = name.partition(".")
            if package == PACKAGE and rest:
                yield rest.replace(".", "/")


def sizes(source: Source, laws: dict[str, Any]) -> Iterator[str]:
    """Yield where the source, a room or a file has more lines than its budget."""
    total = sum(source.lines.values())
    if total > laws["lines"]:
        yield f"src has {total:,} lines of Python, and {laws['lines']:,} are allowed"
    if len(source.lines) > laws["files"]:
        yield f"src has {len(source.lines)} files, and {laws['files']} are allowed"
    for room in sorted({*source.rooms, *laws["rooms"]}):
        lines, budget = source.rooms[room], laws["rooms"].get(room, 0)
        if lines > budget:
            yield f"{room} has {lines:,} lines, and its budget is {budget:,}"
    for file, lines in source.lines.items():
        if lines > laws["file"]:
            yield f"{file} has {lines} lines, and {laws['file']} are allowed"


def small(source: Source) -> set[str]:
    """Return the small modules with fewer than two importers."""
    return {
        file
        for file, lines in source.lines.items()
        if lines < SMALL
        and len(source.importers[file]) < 2
        and Path(file).name not in ("__init__.py", "__main__.py")
    }


def twice(source: Source) -> set[str]:
    """Return the names of files and of public classes that occur more than once."""
    files = Counter(Path(file).name for file in source.lines)
    found = {name for name, n in files.items() if n > 1 and name != "__init__.py"}
    classes = source.definitions(ast.ClassDef).items()
    return found | {name for name, where in classes if len(where) > 1}


def unused(source: Source) -> set[str]:
    """Return public classes and functions that nothing in the source uses."""
    return {
        f"{where[0]}:{name}"
        for name, where in source.definitions(ast.ClassDef, ast.FunctionDef).items()
        if not source.mentions[name]
    }


def spelt(source: Source) -> set[str]:
    """Return the files outside of runs/ that spell out a name of a run's file."""
    return {
        file
        for file, tree in source.trees.items()
        if not file.startswith("runs/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and str(node.value).rpartition("/")[2] in FILES_OF_A_RUN
    }


EXCEPTED = {
    "small": (small, f"has fewer than {SMALL} lines and fewer than two importers: merge it"),
    "twice": (twice, "is the name of two files or of two public classes: rename one"),
    "unused": (unused, "is used by nothing in src: delete it, or move it to what uses it"),
    "spelt": (spelt, "names a file of a run: only runs/ may"),
}
"""Laws with exceptions: the table of these, how breaches are found, what is said of one."""


def breaches(source: Source, laws: dict[str, Any]) -> list[str]:
    """Return each breach in a line."""
    found = list(sizes(source, laws))
    for law, (find, said) in EXCEPTED.items():
        excepted: Iterable[str] = laws.get(law, {})
        now = find(source)
        found += [f"{name} {said}" for name in sorted(now - set(excepted))]
        found += [f"{name} is no exception any more: [{law}]" for name in set(excepted) - now]
    return found


def laws_of(root: Path = ROOT) -> dict[str, Any]:
    """Return the budgets and exceptions in pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    laws: dict[str, Any] = project["tool"][PACKAGE]["laws"]
    return laws


def main() -> int:
    """Print the breaches; return 1 if there are some."""
    found = breaches(Source(ROOT / "src" / PACKAGE), laws_of())
    for line in found:
        print(f"law broken: {line}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
