"""Measures other systems beside ours on Pong, in turn, on this machine.

    python -m benchmarks.peers                     all peers, 3 pairs of runs each
    python -m benchmarks.peers --peer sb3-ppo      only this one (may be repeated)
    python -m benchmarks.peers --score 18          each, alone: when its games reach it
    python -m benchmarks.peers --score 18 --peer colobus    the same for ours, seeds 1 to 5

Let nothing else run on the machine meanwhile. Each peer runs twice: as its own documentation has it
for Atari, beside our default recipe ("own"), and like for like ("alike"). Every pair is a line in
results/peers.jsonl; benchmarks/results/README.md says how to read it. The exit code is 1 if a peer
could not be installed or run.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.lib.ledger import RESULTS, Ledger, Line
from benchmarks.lib.process import COLOBUS
from benchmarks.peers.matches import (
    MODES,
    OURS,
    PEERS,
    SCORE,
    Failed,
    Peer,
    attempt,
    both,
    install,
    learn_ours,
    run_ours,
    run_theirs,
)
from colobus.runtime.system import describe_machine

GAME = "pong"
"""Its training games are whole games with raw rewards, with the other systems too."""

SELF = "colobus"
"""Ours in the place of a peer; `OURS` in the data."""

SEEDS = (1, 2, 3, 4, 5)
"""Of ours in the mode `SCORE`: those that no setting was chosen with."""

BOOK = RESULTS / "peers.jsonl"


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a peer could not be measured."""
    flags = parse(args)
    chosen = [peer for peer in PEERS if peer.name in (flags.peer or [p.name for p in PEERS])]
    done = [measure(peer, flags) for peer in chosen]  # all of them, whatever fails
    if flags.score is not None and SELF in (flags.peer or [SELF]):
        record = partial(keep, OURS, SCORE)
        for seed in SEEDS:
            run = partial(learn_ours, COLOBUS, GAME, seed, flags.seconds, flags.score)
            done.append(attempt(run, record, seed=seed))
    return 0 if all(done) else 1


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags; end with code 2 if they make no sense."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", action="append", choices=[*(peer.name for peer in PEERS), SELF])
    parser.add_argument("--pairs", type=int, default=3, help="of runs (default: 3)")
    parser.add_argument("--seconds", type=float, help="of each run (60; with --score 3600)")
    parser.add_argument("--score", type=float, help="train each, until it has this score")
    flags = parser.parse_args(args)
    if flags.seconds is None:
        flags.seconds = 60.0 if flags.score is None else 3600.0
    if flags.score is None and SELF in (flags.peer or []):
        parser.error(f"--peer {SELF}: ours is beside each of the others; only with --score")
    if flags.pairs < 1 or not 10 <= flags.seconds <= 3600:
        parser.error("--pairs must be at least 1 and --seconds from 10 to 3600")
    return flags


def measure(peer: Peer, flags: argparse.Namespace) -> bool:
    """Install a peer and run both matches, or train it; say whether all went well.

    The first failure of a match is recorded, without any figure, and ends the match.
    """
    try:
        python = install(peer.venv)
    except Failed as failed:
        keep(peer.name, "", {"stage": failed.stage, "failed": failed.line})
        return False
    if flags.score is not None:
        own = partial(run_theirs, python, peer, "own", GAME, flags.seconds, flags.score)
        return attempt(own, partial(keep, peer.name, SCORE))
    good = True
    for mode in MODES:
        note = peer.note if mode == "alike" else "each with its own recipe"
        ours = partial(run_ours, COLOBUS, peer.our_words(mode, GAME), flags.seconds)
        theirs = partial(run_theirs, python, peer, mode, GAME, flags.seconds)
        match, record = partial(both, ours, theirs), partial(keep, peer.name, mode)
        pairs = range(1, flags.pairs + 1)
        good &= all(attempt(match, record, pair=pair, note=note) for pair in pairs)
    return good


def keep(peer: str, mode: str, line: Line) -> None:
    """Write down what was run and how it went, and tell it."""
    line = {"peer": peer, "game": GAME, "mode": mode, **line, "machine": describe_machine()}
    Ledger(BOOK).append(line)
    if "failed" in line:
        told = f"failed ({line['stage']}): {line['failed']}"
    elif mode == SCORE:
        seconds, steps = (line["theirs"]["reached"][name] for name in ("seconds", "steps"))
        told = f"{seconds / 60:.1f} min, {steps:,} steps" if seconds else "not reached"
    else:
        told = f"pair {line['pair']}: a ratio of {line['ratio']:.2f}"
    print(f"{peer} {mode}: {told}", flush=True)


if __name__ == "__main__":
    # SIGTERM ends what this has started, too, as Ctrl-C does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
