"""What the documents say exists: names in the code, files, commands, flags, settings, packages."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import shlex
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import colobus
from benchmarks.lib.faults import Faults, parse_faults
from colobus.cli import main as cli
from colobus.cli.bench import Bench
from colobus.cli.experiment_flags import ExperimentFlags, resolve
from colobus.cli.plan import Plan
from colobus.cli.show import Show
from colobus.cli.slurm import Slurm
from colobus.cli.train import Train
from colobus.core.errors import ColobusError
from colobus.envs.api import GameSettings
from colobus.evaluation.protocols import PROTOCOLS
from colobus.evaluation.scores import COLUMNS, comparable, scores
from colobus.experiment.presets import preset
from colobus.experiment.settings import Experiment, groups_of
from colobus.experiment.settings import flag as flag_of
from colobus.runs import folder
from colobus.runs.curves import read_metrics
from helpers.launching import flags_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "colobus"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    ROOT / "benchmarks" / "results" / "README.md",
    *DOCS,
    ROOT / "examples" / "README.md",
    ROOT / "zoo" / "README.md",
]

TODAY = [page for page in PAGES if not re.search(r"docs/results(\.md|/)", page.as_posix())]
"""Without the pages whose commands stand there as they were given, whatever is called so today."""

NAMED = re.compile(
    r"((?:`[\w.]+`(?:,\s+|\s+and\s+|\s+or\s+)?)+)\s+in\s+\[`([\w/]+\.py)`\]\(([^)]+)\)"
)
"""``A.b`` and ``c`` in [`file.py`](link)."""

TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
"""``file.py::test_name``, the file in tests/."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def found_in(name: str, pattern: str) -> list[Any]:
    """Return what a pattern finds in the lines of a page of docs/."""
    return re.findall(pattern, text_of(ROOT / "docs" / name), re.MULTILINE)


def named_in(page: Path) -> list[tuple[str, str]]:
    """Return the (name, file) pairs of a page, in order; each is defined there."""
    pairs = []
    for names, file, link in NAMED.findall(text_of(page)):
        assert link == source_of(file, ".."), f"{page.name}: [{file}] links to {link}"
        pairs += [(name, file) for name in re.findall(r"`([\w.]+)`", names)]
    assert [f"{name} in {file}" for name, file in pairs if name not in defined(file)] == []
    return pairs


def source_of(file: str, root: str | Path) -> str:
    """Return the path of a file in the package, or of one of the benchmarks."""
    return f"{root}/{file}" if file.startswith("benchmarks/") else f"{root}/src/colobus/{file}"


@cache
def defined(file: str) -> frozenset[str]:
    """Return what a source file defines: ``function``, ``Class``, ``Class.method_or_field``."""
    found = set()
    for node in ast.parse(Path(source_of(file, ROOT)).read_text(encoding="utf-8")).body:
        found |= set(names_of(node))
        if isinstance(node, ast.ClassDef):
            inner = [name for child in node.body for name in names_of(child)]
            found |= {f"{node.name}.{name}" for name in inner}
    return frozenset(found)


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def test_every_name_on_the_way_of_a_frame_is_where_the_page_says() -> None:
    """No name stands there without its place."""
    page = ROOT / "docs" / "one-frame.md"
    pairs = named_in(page)
    placed, arguments = {name for name, _ in pairs}, {"length"}
    assert len(placed) >= 30
    words = set(re.findall(r"(?<!\[)`([A-Za-z_][\w.]*)`", text_of(page)))
    assert words - placed - arguments == set()


def test_roles_and_types_of_the_circle_exist() -> None:
    roles = found_in("circle.md", r"^\| `(\w+)` \| (active|passive) \|.*\[`([\w/]+\.py)`\]")
    assert len(roles) == 7
    for name, kind, file in roles:
        assert name in defined(file)
        assert (f"{name}.step" in defined(file)) == (kind == "active")
    flows = found_in("circle.md", r"^\| `(\w+)` \| (\w+) to ([\w, ]+) \|")
    known = {name for name, _, _ in roles} | {"Replay"}  # a queue or a buffer
    assert "Replay" in defined("roles/replay/api.py")
    assert [kind for kind, _, _ in flows if kind not in defined("core/types.py")] == []
    assert {end for _, start, ends in flows for end in (start, *ends.split(", "))} <= known
    assert len(flows) == 6


def test_the_tree_has_every_package() -> None:
    tree = found_in("circle.md", r"^  ([\w/]+)/ {2,}\S")
    packages = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.glob("**/__init__.py")}
    assert sorted(tree) == sorted(packages - {"."})


def headings(page: Path) -> set[str]:
    """Return the names by which links reach a page's headings."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_leads_to_a_file_and_its_heading() -> None:
    broken = []
    for page in PAGES:
        for link, name in re.findall(r"\]\((?![a-z]+:)([^)\s#]*)#?([^)\s]*)\)", text_of(page)):
            there = page.parent / link if link else page
            if not there.exists() or (name and name not in headings(there)):
                broken.append(f"{page.name}: {link}#{name}")
    assert broken == []


def test_pages_that_the_code_refers_to_exist() -> None:
    named = {
        (page, path.name)
        for folder in (ROOT / "src", ROOT / "benchmarks", ROOT / "examples", ROOT / "tests")
        for path in folder.rglob("*.py")
        for page in re.findall(r"\bdocs/[\w-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert sorted((page, user) for page, user in named if not (ROOT / page).exists()) == []


def commands() -> list[tuple[str, str]]:
    """Return (page, command line) of every ``colobus ...``.

    They stand in code blocks, in backticks, and in the docstrings of examples and benchmarks.
    """
    found = []
    for page in TODAY:
        text = text_of(page).replace("\\\n", "")  # a line that goes on is one
        blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [line.strip() for block in blocks for line in block.splitlines()]
        lines += re.findall(r"`(colobus [^`]+)`", re.sub(r"\s+", " ", text))
        found += [(page.name, line) for line in lines if line.startswith("colobus ")]
    for script in (*ROOT.glob("examples/*.py"), *ROOT.glob("benchmarks/*.py")):
        lines = re.findall(r"^    (colobus .*)$", text_of(script), re.MULTILINE)
        found += [(script.name, line) for line in lines]
    return sorted(set(found))


KINDS: dict[str, type[ExperimentFlags]] = {
    **{"train": Train, "show": Show, "bench": Bench, "plan": Plan, "slurm": Slurm}
}
"""Commands that take the settings of an experiment."""

MADE_UP = re.compile(r"[A-Z]{3}|…|\bmy_|corridor:|squares|--(resume|from|help)|runs/|^[^ ]+( --|$)")
"""What a command line has that stands for something else, or needs a run; or names no preset."""


@pytest.mark.slow
def test_every_command_line_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags exist; names and values of settings do, and each has an effect beside the others."""
    monkeypatch.setattr("colobus.cli.experiment_flags.usable_cores", lambda: 16)
    known = {command: flags_of(command) for command in cli.COMMANDS}
    assert {"--steps", "--until-score", "--no-finish"} <= known["train"]
    tried, wrong = 0, []
    for page, line in commands():
        words = shlex.split(line, comments=True)[1:]
        if words in (["--version"], ["--help"]):
            continue
        flags = {word.split("=")[0] for word in words if word.startswith("--")} - {"--help"}
        unknown = flags - known[words[0]] if words[0] in known else {words[0]}
        wrong += [f"{page}: {line}: {word}" for word in sorted(unknown)]
        asked = line.removeprefix("colobus ").replace("GAME", "qbert").rstrip(" &")
        if words[0] in KINDS and not MADE_UP.search(asked):
            tried += 1
            try:
                resolve(KINDS[words[0]], words[0], shlex.split(asked, comments=True)[1:])
            except ColobusError as error:
                wrong.append(f"{page}: {line}: {error}")
    assert wrong == []
    assert tried >= 60


PROGRAM = re.compile(
    r"python (?:-m (benchmarks[\w.]*)|((?:benchmarks|tests|examples)/[\w/]+)\.py)((?: [^`#\s]\S*)*)"
)
"""A program of the repository and the words behind it."""


def programs() -> list[tuple[str, str, list[str]]]:
    """Return (file, module, words) of every ``python -m benchmarks...`` or ``python FILE.py``.

    They stand in pages and in docstrings of programs.
    """
    scripts = [*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("tests/helpers/*.py")]
    found = []
    for file in (*TODAY, *scripts, *ROOT.glob("examples/*.py")):
        text = text_of(file)
        if "git worktree add" in text:  # of another commit
            continue
        spans = re.findall(r"`(python [^`]+)`", re.sub(r"\s+", " ", text))
        for line in [*text.splitlines(), *spans]:
            if named := PROGRAM.match(line.strip()):
                module, path, words = named.groups()
                found.append((file.name, module or path.replace("/", "."), shlex.split(words)))
    return found


class Taken(Exception):
    """A program has taken its words."""


def test_every_program_that_is_named_takes_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported, and goes no further than that."""

    def take(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parsed(*args: Any) -> Any:
            parse(*args)
            raise Taken

        return parsed

    def taken(*_args: Any, **_rest: Any) -> Any:
        raise Taken

    for name in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(ArgumentParser, name, take(getattr(ArgumentParser, name)))
    monkeypatch.setattr("benchmarks.lib.stubs.measure", taken)
    for name in ("same", "pairs"):  # a clone need not have all of its history
        monkeypatch.setattr(f"benchmarks.{name}.commit_of", str)
    given, wrong = programs(), []
    assert len(given) >= 60
    for file, name, words in given:
        path = ROOT / f"{name.replace('.', '/')}.py"
        if not name.startswith("benchmarks"):
            wrong += [] if path.is_file() else [f"{file}: {name}"]
            continue
        module = importlib.import_module(name if path.is_file() else f"{name}.__main__")
        if name == "benchmarks.lib.faults":  # its other words are those of colobus
            monkeypatch.setattr(module, "run", taken)
        if not words:  # perhaps only its name
            continue
        try:
            wrong.append(f"{file}: {name} {words}: {module.main(words)}")
        except Taken:
            continue
        except SystemExit:
            wrong.append(f"{file}: {name} {words}")
    assert wrong == []


def test_what_is_made_can_be_made() -> None:
    made = re.findall(
        r"(?:`|^(?=make [a-z-]+ *(?:#|$)))make ([a-z-]+)",
        "\n".join(map(text_of, PAGES)),
        re.MULTILINE,
    )
    targets = re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert len(made) > 20
    assert set(made) - set(targets) == set()


@pytest.mark.slow
def test_the_flags_that_pages_mention_exist() -> None:
    known = set().union(*(flags_of(command) for command in cli.COMMANDS))
    known |= {"--version", "--help", "--help-all", "--trust"}
    known |= {"--only", "--list", "--seeds", "--most"}  # of benchmarks/run.py
    known |= {"--peer", "--pairs", "--score"}  # of benchmarks/peers
    known |= {"--head", "--metrics-export-port", "--node-ip-address", "--port"}  # of ray start
    known |= {"--faults", "--dummy"}  # of benchmarks/lib
    known |= {"--logdir"}  # of tensorboard
    known |= {"--index-url"}  # of pip
    known |= {"--build-arg", "--file", "--network", "--rm", "--tag", "--user"}  # of podman
    known |= {"--userns", "--volume", "--shm-size"}  # of podman, too
    known |= {"--exclusive", "--nodes", "--requeue", "--signal"}  # of Slurm
    known |= {"--submission-id", "--no-wait", "--runtime-env-json", "--follow"}  # of ray job
    known |= {"--bundles", "--chaos", "--epsilon", "--gpus", "--passes"}  # of version 0.1
    known |= {"--local-dir"}  # of the command of a hub
    mentioned = {
        (page.name, flag)
        for page in TODAY
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text_of(page))
    }
    assert sorted((page, flag) for page, flag in mentioned if flag not in known) == []


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


GROUPS = tuple(name for name in groups_of(Experiment()) if name != "replay")
"""Of settings; those of a replay buffer are on the page of Gorila."""


def values_of(group: str, name: str, experiments: Sequence[Experiment]) -> list[str]:
    return [shown(getattr(getattr(experiment, group), name)) for experiment in experiments]


DBA3C = "dba3c-pong dba3c-breakout dba3c-catch dba3c-breakout-paper"
GORILA = "dqn-pong dqn-breakout apex-pong gorila-pong gorila-breakout gorila-catch gorila-paper"


@pytest.mark.parametrize(
    ("page", "names", "groups", "whole"),
    [
        ("settings.md", "pong ppo-breakout catch", GROUPS, GROUPS),
        ("dba3c.md", DBA3C, GROUPS, ("algorithm",)),
        ("gorila.md", GORILA, (*GROUPS[:5], "replay"), ("algorithm", "replay")),
    ],
)
def test_the_table_of_presets_has_all_that_differs_from_pong(
    page: str, names: str, groups: Sequence[str], whole: Sequence[str]
) -> None:
    """And all settings of some groups."""
    pong, presets = preset("pong")[0], [preset(name)[0] for name in names.split()]
    want = {}
    for group in groups:
        for field in dataclasses.fields(getattr(presets[0], group)):
            values = values_of(group, field.name, presets)
            if group in whole or {*values} != {*values_of(group, field.name, [pong])}:
                same = [value if value != values[0] else "" for value in values[1:]]
                want[flag_of(field.name, group)] = (values[0], *same)
    del want["--game"]  # the first word of the command
    rows = found_in(page, r"^\| `(--[\w-]+)` \|(.*)\|$")
    cells = {flag: tuple(cell.strip() for cell in rest.split("|")) for flag, rest in rows}
    assert {flag: row for flag, row in cells.items() if len(row) == len(presets)} == want


def test_the_discounts_of_the_default_are_those_on_the_page_of_games() -> None:
    algorithm: Any = preset("breakout")[0].algorithm
    ((start, end),) = found_in("results/games.md", r"instead of\s+from (\S+) to ([\d.]+)")
    assert (float(start), float(end)) == (algorithm.gamma, algorithm.gamma_end)


def test_a3c_in_pong_is_one_worker_of_dba3c() -> None:
    """As docs/dba3c.md says."""
    two = preset("dba3c-pong")[0]
    shape = dataclasses.replace(two.shape, workers=1, servers=1, actors=2)
    assert preset("a3c-pong")[0] == dataclasses.replace(two, shape=shape)


@pytest.mark.parametrize(
    ("page", "letter", "count", "least"),
    [("dba3c.md", "D", 45, 40), ("gorila.md", "G", 20, 20), ("appo.md", "R", 24, 20)],
)
def test_every_row_is_there_once(page: str, letter: str, count: int, least: int) -> None:
    """With what it names, which exists; the page names so many tests at least."""
    rows = found_in(page, rf"^\| ({letter}\d\d) \|(.*)\|$")
    assert [row for row, _ in rows] == [f"{letter}{n:02}" for n in range(1, count + 1)]
    links: set[str] = set()
    for row, rest in rows:
        cells = [cell.strip() for cell in rest.split("|")]
        assert len(cells) == 4, row
        assert all(cells), row
        refused = "refused" in cells[3].lower() or cells[3].startswith("Not yet")
        assert NAMED.search(cells[1]) or refused, row
        assert TEST.search(cells[2]) or refused, row
        links |= set(re.findall(r"\[`([^`]+)`\]", rest))
    assert links <= {file for _, file in named_in(ROOT / "docs" / page)}  # none without a name
    tests = set(TEST.findall(text_of(ROOT / "docs" / page)))
    assert len(tests) >= least
    missing = [
        f"{file}::{name}"
        for file, name in sorted(tests)
        if not re.search(rf"^def {name}\(", text_of(ROOT / "tests" / file), re.MULTILINE)
    ]
    assert missing == []


def test_the_words_of_faults_are_those_of_the_code() -> None:
    words = found_in("running.md", r"^\| `(\w+)=(\w+)` \|")
    fields = [field.name for field in dataclasses.fields(Faults)]
    assert [name for name, _ in words] == [name for name in fields if name not in ("lags", "hits")]
    for name, value in words:
        assert getattr(parse_faults(f"{name}={value}"), name) > 0
    hits = found_in("running.md", r"`((?:kill|stop)=\w+:\d+s)`")
    assert [len(parse_faults(word).hits) for word in hits] == [1] * len(hits) != []


@pytest.mark.parametrize("name", ["catch", "dba3c-catch", "gorila-catch", "iqn-catch", "pqn-catch"])
def test_every_metric_of_a_run_is_listed(name: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"kl_coeff": 0.1, "kl_adjust": 1.0} if name == "catch" else {}
    colobus.train(name, tmp_path, steps=2_000, log=lambda _line: None, **settings)
    cells = found_in("files.md", r"^\| ([^|]*`[^|]*) \|")
    listed = {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}
    line = read_metrics(tmp_path)[-1]
    assert {key for key in line if not key.startswith("time_")} - listed == set()
    assert {path.name for path in tmp_path.iterdir()} <= {
        word.rstrip("/") for cell in cells for word in re.findall(r"`([\w./]+)`", cell)
    }


def test_every_file_that_a_run_may_have_is_listed() -> None:
    cells = " ".join(found_in("files.md", r"^\| ([^|]*`[^|]*) \|"))
    names = folder.OWN | folder.BESIDE | {folder.CONFIG, folder.CURVE, folder.RECONSTRUCTION}
    assert {name for name in names if not re.search(rf"`{name}[/`]", cells)} == set()


def test_the_table_of_protocols_is_that_of_the_code() -> None:
    rows = found_in("atari.md", r"^\| `(\w+)` \| (\d+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|")
    want = []
    for name, protocol in PROTOCOLS.items():
        most = (protocol.noop_max or 1) - 1
        noops = f"up to {most}" if most else "none"
        given = [(protocol.sticky, shown(protocol.sticky)), (protocol.noop_max, noops)]
        given.append((protocol.max_frames, shown(protocol.max_frames)))
        cells = ["as in the run" if value is None else words for value, words in given]
        want.append((name, str(protocol.episodes), *cells))
    own = r"(?<=^as in the run) \(.*"  # what it is in a run by default
    assert [tuple(re.sub(own, "", cell) for cell in row) for row in rows] == want


def test_the_table_of_published_scores_is_that_of_the_code() -> None:
    page = "evaluation.md"
    rows = found_in(page, r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \| (\d+) \| (.*) \|$")
    want = []
    for column in COLUMNS:
        games = str(sum(column.name in row for row in scores().values()))
        words = (column.label, column.protocol, column.frames, games, column.source)
        want.append((column.name, *words))
    assert rows == want
    reasons = set(found_in(page, r"^\| (yes|except [^|]+|no: [^|]+) \|"))
    played = GameSettings(game="breakout")
    changes: tuple[dict[str, Any], ...] = ({}, {"sticky": 0.25}, {"noop_max": 0}, {"frame_skip": 2})
    changes = (*changes, {"noop_max": 9}, {"noop_max": 99}, {"max_frames": 9000})
    settings = [dataclasses.replace(played, **change) for change in changes]
    told = {
        comparable(column, one, starts)
        for column in COLUMNS
        for one in settings
        for starts in (False, True)
    }
    assert told == reasons


def test_exit_codes_are_those_of_the_errors() -> None:
    import colobus.core.errors

    listed = {int(code) for code in found_in("running.md", r"^\| (\d+) \|")}
    errors = [e for e in vars(colobus.core.errors).values() if isinstance(e, type)]
    assert listed == {0, *(e.exit_code for e in errors if hasattr(e, "exit_code"))}
    assert found_in("running.md", r"^\| 129, 130, 131, 138, 143 \|")


LICENCES = {
    "Apache-2.0": ("Apache 2.0", "Apache-2.0", "Apache Software License"),
    "BSD-2-Clause": ("BSD-2-Clause", "BSD 2-Clause", "BSD License"),
    "BSD-3-Clause": ("BSD-3-Clause", "BSD License"),
    "MIT-CMU": ("MIT-CMU",),
    "GPL-2.0-only": ("GPL-2.0-only",),
    "MIT": ("MIT",),
    "MPL-2.0": ("MPL-2.0", "MPL 2.0"),
    "PSF": ("Python Software Foundation License",),
}
"""How packages spell them in their metadata."""


def names_in(groups: Iterable[Sequence[str]]) -> set[str]:
    """Return the packages of groups of requirements."""
    return {re.split(r"[<>=!~;\[ ]", one)[0] for group in groups for one in group}


def test_every_dependency_has_a_pin_and_a_row_with_its_licence() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    own, groups = project["project"], project["dependency-groups"]
    extras = own["optional-dependencies"]
    names = names_in([own["dependencies"], *extras.values(), *groups.values()])
    pins = re.findall(r"^([^=\n]+)==", text_of(ROOT / "constraints.txt").lower(), re.MULTILINE)
    assert {name.lower() for name in names} - set(pins) == set()
    pattern = r"^\| ([\w-]+) \| [^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \|$"
    rows = dict(found_in("dependencies.md", pattern))
    assert set(rows) - {"package"} == names
    apart = [group for name, group in groups.items() if name != "dev"]  # not of make setup
    apart += [extras[name] for name in ("cluster", "wandb", "trackio")]
    for name in sorted(names):
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            assert name in names_in(apart), name
            continue
        stated = " ".join(
            [
                *(about.get_all("License-Expression") or []),
                "".join(about.get_all("License") or [])[:80],
                *(about.get_all("Classifier") or []),
            ]
        )
        for licence in rows[name].removesuffix(" and others").split(", "):
            assert any(word in stated for word in LICENCES[licence]), f"{name}: {rows[name]}"
