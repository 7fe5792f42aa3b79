"""``gelada eval``: full games without learning, scored under a named protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gelada.commands.parsing import at_least, check_run, parse, print_json
from gelada.errors import GeladaError


@dataclass(frozen=True)
class Eval:
    """Play full games without learning; print the scores with their whole protocol."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run."""
    episodes: int | None = None
    """Games to play (default: as the protocol says, 100 for training)."""
    protocol: Literal["training", "noop", "sticky", "dba3c"] = "training"
    """training: as in training; noop: up to 30 no-ops, 18,000 frames; sticky: sticky actions 0.25,
    108,000 frames; dba3c: mean of 50 consecutive games, greedy, 160,000 frames, FIRE after 30 equal
    actions."""
    policy: Literal["sampled", "greedy", "epsilon"] | None = None
    """Draw actions from the policy, take the best one, or (epsilon) 5 % of the time any (default:
    as the protocol says, else sampled, or epsilon for an agent without probabilities)."""
    checkpoint: str = ""
    """File in the run's checkpoints (default: the newest complete one)."""
    seed: int = 1
    """Of the games and the drawn actions."""
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code: 130 if Ctrl-C ended it early."""
    flags = parse(Eval, "eval", args)
    if flags.episodes is not None:
        at_least("--episodes", flags.episodes, 1)
    at_least("--seed", flags.seed, 0)
    source = find_checkpoint(flags.run, flags.checkpoint)
    from gelada.agent import load
    from gelada.display import Printer
    from gelada.roles.evaluator import evaluate

    printer = Printer(to_stderr=flags.json)
    agent = load(source)
    with printer.progress(f"playing {agent.games.game}, protocol {flags.protocol}", "games") as bar:
        evaluation = evaluate(
            agent, flags.protocol, flags.episodes, flags.policy, flags.seed, progress=bar
        )
    if not evaluation.interrupted:
        printer.line(f"saved in {evaluation.save(flags.run)}")
    for line in evaluation.lines():
        printer.line(line)
    if flags.json:
        print_json(evaluation.as_dict())
    return 130 if evaluation.interrupted else 0


def find_checkpoint(run: Path, name: str) -> Path:
    """Return what `gelada.agent.load` takes: the run, or one of its checkpoint's files.

    Raises:
        GeladaError: if ``run`` is no run or has no such checkpoint.
    """
    check_run(run)
    if not name:
        return run
    folder = run / "checkpoints"
    for path in (Path(name), folder / name, folder / f"{name}.safetensors"):
        if path.suffix == ".safetensors" and path.is_file():
            return path
    known = [path.name for path in sorted(folder.glob("*.safetensors"))]
    raise GeladaError(f"--checkpoint {name}: not in {folder}; there are: {', '.join(known)}")
