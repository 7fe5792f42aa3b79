"""``colobus eval``: full games without learning; ``colobus starts``: states to begin them from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from colobus.cli.flags import RunPath, check_file, check_run, parse, print_json
from colobus.cli.interrupts import Interrupts
from colobus.core.errors import ColobusError, program, quoted
from colobus.core.fields import POSITIVE, Range
from colobus.runs.folder import TENSORS, find_files, place_of

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from colobus.evaluation.protocols import Evaluation
    from colobus.evaluation.scores import Published


@dataclass(frozen=True, kw_only=True)
class AgentFlags:
    """How an agent plays."""

    policy: Literal["sampled", "greedy", "epsilon"] | None = None
    """Sample actions from the policy, take the best one, or (epsilon) the best one and sometimes a
    random one (default: as the protocol says, or what the algorithm trains with)."""
    checkpoint: str = ""
    """Checkpoint of the run: best, last, or the number of a version (default: the newest complete
    one, or the best if the newest is worse by more than chance would have it)."""
    seed: Annotated[int, Range(0)] = 1
    """Seed of the games and of sampled actions."""
    device: str = "cpu"
    """Device of the agent's network: cpu, cuda, cuda:N for one of several GPUs, or auto for a GPU
    if there is one."""


@dataclass(frozen=True)
class Eval(AgentFlags):
    """Play full games without learning; print the scores with their whole protocol."""

    run: RunPath
    """Folder of the run or of an exported agent, the file of a checkpoint, or zoo:NAME."""
    episodes: Annotated[int, Range(1)] | None = None
    """Games to play (default: as the protocol says, 100 for training)."""
    minutes: Annotated[float, POSITIVE] | None = None
    """Begin no further game after so many minutes; the games that are being played go on to their
    end, and the protocol says how many there are (default: play all)."""
    protocol: Literal["training", "noop", "sticky", "dba3c", "human"] | None = None
    """training: as in training; noop: up to 30 no-ops, 18,000 frames; sticky: sticky actions 0.25,
    108,000 frames; dba3c: mean of 50 consecutive games, greedy, 160,000 frames, FIRE after 30 equal
    actions; human: from the start states of --starts, 108,000 frames from the game's beginning
    (default: human with --starts, else training)."""
    starts: Path | None = None
    """File of start states that colobus starts or colobus play --keep made, for protocol human."""
    compare: bool = False
    """Print the score beside the published ones for the game."""
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code: 130 or 143 if Ctrl-C or SIGTERM ended it early."""
    with Interrupts() as interrupts:
        flags = parse(Eval, "eval", args)
        protocol = flags.protocol or ("human" if flags.starts else "training")
        check_starts(protocol, flags.starts)
        source = check_source(flags.run)
        from colobus.cli.display import Printer
        from colobus.evaluation.agent import load
        from colobus.evaluation.evaluator import evaluate
        from colobus.evaluation.scores import compare
        from colobus.evaluation.start_states import read_starts

        printer = Printer(to_stderr=flags.json)
        agent = load(source, device=flags.device, checkpoint=flags.checkpoint, log=printer.line)
        starts = read_starts(flags.starts, agent.games) if flags.starts else None
        with printer.progress(f"playing {agent.games.game}, protocol {protocol}", "games") as bar:
            given = (flags.episodes, flags.policy, flags.seed, bar, starts, flags.minutes)
            evaluation = evaluate(agent, protocol, *given)
        interrupts.gentle = True  # what was played is said and saved, whatever is pressed now
        for line in evaluation.lines():
            printer.line(line)
        rows = compare(evaluation.settings, evaluation.starts is not None) if flags.compare else []
        if rows and evaluation.games:
            printer.table(table_beside(evaluation, rows), soft_wrap=False)
        elif flags.compare and not rows:
            printer.line(f"no published scores for {evaluation.settings.game}")
        if flags.json:
            published: dict[str, Any] = {"compare": [row._asdict() for row in rows]}
            print_json(evaluation.as_dict() | (published if flags.compare else {}))
        if evaluation.games:  # last: a folder that cannot be written to costs no scores
            printer.line(f"saved in {evaluation.save(find_files(source)[0])}")
        return interrupts.exit_code if evaluation.interrupted else 0


def table_beside(evaluation: Evaluation, rows: Sequence[Published]) -> RichTable:
    """Return an evaluation and the published scores of its game as a table."""
    from colobus.cli.display import on_terminal
    from colobus.evaluation.scores import Published
    from colobus.report.baselines import published_row
    from colobus.report.format import Table

    settings, count, share = evaluation.settings, len(evaluation.games), evaluation.human_normalised
    own = Published(
        "this agent",
        f"{evaluation.protocol.name}, {count} games",
        f"{evaluation.steps * settings.frame_skip / 1e6:,.1f} M",
        evaluation.mean,
        share,
        "",
        "",
    )
    table = Table(
        ("", "games", "learned>", "score>", "human %>", "comparable"),
        tuple(published_row(row)[:-1] for row in (own, *rows)),
        f"{settings.game}, published scores",
        "learned: frames, for each game; human %: random play is 0, a human 100; comparable: were "
        "the games played like this agent's? docs/evaluation.md has the sources",
    )
    found = on_terminal(table)
    found.rows[0].style = "bold"
    return found


def check_starts(protocol: str, starts: Path | None) -> None:
    """Raise ColobusError if there is a file of starts without protocol human, or the other way."""
    if protocol == "human" and not starts:
        raise ColobusError(
            "--protocol human: needs start states; give --starts FILE, which is made with: "
            f"{program()} starts RUN --out FILE"
        )
    if starts and protocol != "human":
        raise ColobusError(f"--starts {starts}: only --protocol human begins there; give that too")


def check_source(run: Path) -> Path:
    """Return what `colobus.evaluation.agent.load` takes: a run, an exported folder, or a file.

    Raises:
        ColobusError: if it is none of these.
    """
    source = place_of(run)
    if source.suffix == TENSORS and not source.is_file():
        raise ColobusError(f"{str(run)!r}: there is no such checkpoint")
    check_run(find_files(source)[0])
    return source


@dataclass(frozen=True)
class Starts:
    """Save start states from an agent's games, for evaluations that begin there."""

    run: RunPath
    """Folder of the run, or the file of a checkpoint."""
    out: Path
    """File to write; it must not exist yet."""
    count: Annotated[int, Range(1)] = 100
    """Number of start states; about 45 seconds of play lie between two."""
    seed: Annotated[int, Range(0)] = 1
    """Seed of the games, of sampled actions and of the choice of states."""


def make_starts_file(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Starts, "starts", args)
    source = check_source(flags.run)
    if flags.out.exists():
        raise ColobusError(f"--out {flags.out}: the file exists; name a new file")
    check_file("--out", flags.out)
    from colobus.cli.display import Printer
    from colobus.evaluation.agent import load
    from colobus.evaluation.start_states import make_starts, write_starts

    printer = Printer()
    agent = load(source, log=printer.line)
    with printer.progress(f"playing {agent.games.game}", "starts") as bar:
        starts = make_starts(agent, str(flags.run), flags.count, flags.seed, progress=bar)
    written = write_starts(flags.out, starts)
    printer.line(
        f"{flags.out}: {written.count} starts of {agent.games.game}, {written.frames.min():,} to "
        f"{written.frames.max():,} frames into their games; sha256 {written.sha256}"
    )
    printer.line(f"play from them: {program()} eval RUN --starts {quoted(str(flags.out))}")
    return 0
