"""The sections of docs/results.md about other systems, replay buffers and single choices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ledger import Ledger, Line
from page import Row, Section, machine, origin
from peers import OURS, RESULTS, SCORE, pairs_in
from table import listed

NAMES = {
    "sb3-a2c": "Stable-Baselines3 A2C",
    "sb3-ppo": "Stable-Baselines3 PPO",
    "rllib-appo": "RLlib APPO",
    "sample-factory-appo": "Sample Factory APPO",
    "tianshou-ppo": "Tianshou PPO",
}

FOLDER = Path(__file__).resolve().parent / "results"

STORES = {
    "gelada": "Gelada",
    "cpprb": "cpprb",
    "sb3": "Stable-Baselines3",
    "torchrl": "TorchRL",
}

REMARKS = (
    "RLlib's own network is not among ours, so both play Nature's like for like; each line of "
    "[`peers.jsonl`](../benchmarks/results/peers.jsonl) says how like the two are.",
)


def pairs(lines: Sequence[Line]) -> dict[tuple[str, str], list[list[Line]]]:
    """Return the pairs of runs on Pong by (peer, mode), in groups of one version and commit."""
    found: dict[tuple[str, str], list[list[Line]]] = {}
    for (game, peer, mode, *_), own in pairs_in(lines).items():
        if game == "pong":
            found.setdefault((peer, mode), []).append(own)
    return found


def middle(lines: Sequence[Line], side: str) -> float:
    """Return the median of one side's rates."""
    return float(median(line[side]["steps_per_s"] for line in lines))


def cells_of(groups: Sequence[Sequence[Line]]) -> tuple[str, str]:
    """Return both rates, and the ratios, of the newest pairs."""
    newest = groups[-1]
    rates = f"{middle(newest, 'ours'):,.0f}, {middle(newest, 'theirs'):,.0f}"
    return rates, listed([line["ratio"] for line in newest], "{:.2f}")


def speed(lines: Sequence[Line]) -> Section:
    """Return the section about steps a second beside other systems."""
    found = pairs(lines)
    rows, told, how = [], [], []
    for peer, name in NAMES.items():
        modes = [found.get((peer, mode)) for mode in ("alike", "own")]
        if not all(modes):
            continue
        alike, own = (groups for groups in modes if groups)
        newest = alike[-1][-1]["theirs"]
        label = f"{name} {newest['version']}"
        rows.append(Row((label, str(newest["passes"]), *cells_of(alike), *cells_of(own))))
        for mode, groups in (("like for like", alike), ("own recipe", own)):
            for old in groups[:-1]:
                ratios = listed([line["ratio"] for line in old], "{:.2f}")
                told.append(
                    f"{label}, {mode}: earlier pairs gave {ratios} "
                    f"({machine(old[-1])}; {origin(old[-1])})."
                )
            last = groups[-1][-1]
            how.append(
                f"{label}, {mode}: `{last['ours']['command']}` and `{last['theirs']['command']}`; "
                f"{machine(last)}; {origin(last)}"
            )
    return Section(
        "Beside other systems: steps a second",
        "`python benchmarks/peers.py` runs each system and Gelada in turn, three times each, on "
        "Pong. Rates are decisions of the agent a second (4 frames each) that were acted and "
        "learned: medians of three; a ratio is the median of three pairs. *Like for like* is "
        "Gelada with the other system's network, input of 84x84, epochs, minibatch, games and "
        "steps of a batch; the precision is free, and Gelada chose bfloat16. *Own recipe* is the "
        "other system as its documentation has it for Atari, beside `gelada train pong`.",
        ("", "epochs", "like for like: Gelada, it", "ratio", "own recipe: Gelada, it", "ratio"),
        tuple(rows),
        "",
        (*REMARKS, *told),
        how,
    )


def tries(lines: Sequence[Line], peer: str) -> list[Line]:
    """Return the newest run of each seed of a system that was trained to a score."""
    own = [line for line in lines if line["mode"] == SCORE and line["peer"] == peer]
    newest = {line.get("seed"): line for line in own if "theirs" in line}
    return list(newest.values())


def minutes(line: Line) -> float | None:
    """Return the minutes until the score was reached, or None."""
    seconds = line["theirs"]["reached"]["seconds"]
    return None if seconds is None else seconds / 60


def to_score(lines: Sequence[Line]) -> Section:
    """Return the section about the minutes until Pong is played at 18."""
    ours = tries(lines, OURS)
    steps = [line["theirs"]["reached"]["steps"] for line in ours]
    rows = []
    if ours:
        label = f"Gelada, median of {len(ours)} seeds"
        cells = (
            label,
            listed([minutes(line) for line in ours], "{:.1f}"),
            listed(steps, "{:,.0f}"),
        )
        rows.append(Row((*cells, "")))
    others = [(name, line) for peer, name in NAMES.items() for line in tries(lines, peer)]
    others.sort(key=lambda one: minutes(one[1]) or 1e9)
    for name, line in others:
        run = line["theirs"]
        if (found := minutes(line)) is not None:
            rows.append(Row((name, f"{found:.1f}", f"{run['reached']['steps']:,}", "")))
        else:
            never = f"not in {run['within'] / 60:.0f}"
            rows.append(Row((name, never, "", f"{run['last']:g}, {run['curve'][-1][1]:,}")))
    how = [
        f"{name}: `{line['theirs']['command']}`; {machine(line)}; {origin(line)}"
        for name, line in [("Gelada", line) for line in ours] + others
    ]
    return Section(
        "Beside other systems: minutes to 18 in Pong",
        "Minutes until training games have a mean of 18, each system with its own recipe, alone "
        "on the same machine (`python benchmarks/peers.py --score 18`). For Gelada the mean is "
        "that of the newest 50 games and the clock starts with the command. Another system has "
        "one try of an hour, its newest 20 games count, and its clock starts when it begins to "
        "learn.",
        ("", "minutes to 18", "steps until then", "after 60 minutes: mean, steps"),
        tuple(rows),
        "This says how fast a system is on two cores, not how well it learns: at a few hundred "
        "steps a second it has seen few games after an hour.",
        measured=how,
    )


def replay_buffers(lines: Sequence[Line]) -> Section:
    """Return the section about the replay buffer beside others."""
    kinds = (
        ("uniform, batches/s", "uniform", "batches_per_s"),
        ("prioritized, batches/s", "prioritized", "batches_per_s"),
        ("prioritized with new priorities, batches/s", "prioritized", "with_update_per_s"),
        ("resident bytes of a transition", "uniform", "resident_per_transition"),
    )
    speeds = [line for line in lines if line["what"] == "speed"]
    rows = []
    for label, mode, name in kinds:
        cells = []
        for store in STORES:
            own = [x for x in speeds if (x["store"], x["mode"]) == (store, mode)]
            done = [x[name] for x in own if name in x]
            failed = [x["failed"] for x in own if "failed" in x]
            cells.append(f"{median(done):,.0f}" if done else "failed" if failed else "none")
        rows.append(Row((label, *cells)))
    ratios = [line for line in lines if line["what"] == "ratio"]
    after = "".join(
        "Samples for each insert, two actors, two learners and two replay buffers: "
        f"{line['asked']:g} were asked for, and the larger error over {line['inserts']:,} inserts "
        f"is {100 * line['worst_error']:.2f} %."
        for line in ratios[:1]
    )
    failures = sorted({line["failed"] for line in speeds if "failed" in line})
    versions = {
        f"{name} {value}" for line in speeds for name, value in line.get("versions", {}).items()
    }
    return Section(
        "The replay buffer beside others",
        "200,000 transitions of 84x84, batches of 32 with stacks of 4 frames, one core, in turn, "
        "medians of five rounds (`python benchmarks/stores.py`).",
        ("", *STORES.values()),
        tuple(rows),
        after,
        tuple(f"Failed: {text}" for text in failures),
        [
            f"`python benchmarks/stores.py`; {where(lines)}; {', '.join(sorted(versions))}",
        ],
    )


def where(lines: Sequence[Line]) -> str:
    """Return machine and commits of lines that have no time."""
    commits = dict.fromkeys(line["machine"]["commit"] for line in lines)
    return f"{machine(lines[-1])}; commit {', '.join(f'`{name}`' for name in commits)}"


def pieces(measured: dict[str, Any]) -> Section:
    """Return the section about single choices in the code."""
    rows = [
        Row((name, f"{own['ours']:.3g} ms", f"{own['instead']:.3g} ms"))
        for name, own in measured["pieces"].items()
    ]
    return Section(
        "What single choices gain in one operation",
        f"{measured['unit'].capitalize()}; the small network, bfloat16, a batch of 16 windows of "
        "64 steps, minibatches of 256 (`python benchmarks/pieces.py`).",
        ("choice", "as it is", "instead"),
        tuple(rows),
        measured=[f"`python benchmarks/pieces.py`; {where([measured])}"],
    )


def sections() -> list[Section]:
    """Return the sections of this module; what is not measured yet is left out."""
    peers = Ledger(RESULTS).lines()
    found = [speed(peers), to_score(peers)]
    if stores := Ledger(FOLDER / "stores.jsonl").lines():
        found.append(replay_buffers(stores))
    if (file := FOLDER / "pieces.json").exists():
        found.append(pieces(json.loads(file.read_text(encoding="utf-8"))))
    return found
