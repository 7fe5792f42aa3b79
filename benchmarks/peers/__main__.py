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
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.lib.ledger import RESULTS, Ledger, Line
from benchmarks.peers import matches
from benchmarks.run import now
from colobus.runtime.system import describe_machine

GAME = "pong"
"""Its training games are whole games with raw rewards, with the other systems too."""

SELF = "colobus"
"""Ours in the place of a peer; `matches.OURS` in the data."""

SEEDS = (1, 2, 3, 4, 5)
"""Of ours with a score: those that no setting was chosen with."""

BOOK = RESULTS / "peers.jsonl"


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a peer could not be measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*(peer.name for peer in matches.PEERS), SELF]
    parser.add_argument("--peer", action="append", choices=names)
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
    chosen = flags.peer or names
    peers = [peer for peer in matches.PEERS if peer.name in chosen]
    done = [measure(peer, flags) for peer in peers]  # all of them, whatever fails
    if flags.score is not None and SELF in chosen:
        for seed in SEEDS:
            run = partial(matches.learn_ours, GAME, seed, flags.seconds, flags.score)
            done.append(keep(matches.OURS, matches.SCORE, run, seed=seed))
    return 0 if all(done) else 1


def measure(peer: matches.Peer, flags: argparse.Namespace) -> bool:
    """Train a peer to a score, or run both matches; say whether all went well.

    The first failure of a match is recorded, without any figure, and ends the match.
    """

    def theirs() -> Line:
        return matches.run_theirs(peer, GAME, flags.seconds, flags.score)

    def both(mode: str) -> Line:
        matches.install(peer.venv)  # if it fails, ours need not run
        ours, _ = matches.train(peer.our_words(mode, GAME), matches.START + flags.seconds)
        did = {"ours": ours, "theirs": theirs()}
        ratio = did["ours"]["steps_per_s"] / did["theirs"]["steps_per_s"]
        return {**did, "ratio": round(ratio, 3)}

    if flags.score is not None:
        return keep(peer.name, matches.SCORE, theirs)
    good = True
    for mode in matches.MODES:
        note = peer.note if mode == "alike" else "each with its own recipe"
        match = partial(keep, peer.name, mode, partial(both, mode), note=note)
        good &= all(match(pair=pair) for pair in range(1, flags.pairs + 1))
    return good


def keep(peer: str, mode: str, run: Callable[[], Line], **about: Any) -> bool:
    """Write down and tell what a run did, or that it failed; say whether it went well."""
    load = round(os.getloadavg()[0], 2)
    line = {"peer": peer, "game": GAME, "mode": mode, **about, "time": now(), "load": load}
    try:
        did = run()
        line |= did if "ratio" in did else {"theirs": did}  # one alone has no ratio
    except matches.Failed as failed:
        line["stage"], line["failed"] = failed.args
    Ledger(BOOK).append({**line, "machine": describe_machine()})
    told = line.get("failed") or line.get("ratio") or line["theirs"]["reached"]
    print(f"{peer} {mode}: {told}", flush=True)
    return "failed" not in line


if __name__ == "__main__":
    # SIGTERM ends what this has started, too, as Ctrl-C does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
