"""Tables about speed: the machine's limit, other systems, and a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.lib.ledger import RESULTS, Ledger, Line, Results
from benchmarks.lib.table import Row, Table, listed, machine, markdown, origin
from benchmarks.peers.matches import OURS, SCORE

NAMES = {
    "sb3-a2c": "Stable-Baselines3 A2C",
    "sb3-ppo": "Stable-Baselines3 PPO",
    "rllib-appo": "RLlib APPO",
    "sample-factory-appo": "Sample Factory APPO",
    "tianshou-ppo": "Tianshou PPO",
}


def lines_of(name: str = "peers") -> list[Line]:
    """Return the lines of a file of results beside the ledger."""
    return Ledger(RESULTS / f"{name}.jsonl").lines()


def pairs(lines: Sequence[Line]) -> dict[tuple[str, str], list[list[Line]]]:
    """Return the pairs of runs on Pong by (peer, mode), in groups of one version and commit."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[Line]]] = {}
    for line in lines:
        if "ratio" in line and line["game"] == "pong":
            own = found.setdefault((line["peer"], line["mode"]), {})
            group = line["theirs"]["version"], line["machine"].get("commit", "")
            own.setdefault(group, []).append(line)
    return {name: list(own.values()) for name, own in found.items()}


def middle(lines: Sequence[Line], side: str) -> float:
    """Return the median of one side's rates."""
    return float(median(line[side]["steps_per_s"] for line in lines))


def cells_of(groups: Sequence[Sequence[Line]]) -> tuple[str, str]:
    """Return both rates, and the ratios, of the newest pairs."""
    newest = groups[-1]
    rates = f"{middle(newest, 'ours'):,.0f}, {middle(newest, 'theirs'):,.0f}"
    return rates, listed([line["ratio"] for line in newest], "{:.2f}")


def peers_speed(_results: Results) -> Table:
    """Return the table about steps a second beside other systems."""
    found = pairs(lines_of())
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
                told.append(f"{label}, {mode}: {ratios} ({machine(old[-1])}; {origin(old[-1])}).")
            last = groups[-1][-1]
            how.append(
                f"{label}, {mode}: `{last['ours']['command']}` and `{last['theirs']['command']}`; "
                f"{machine(last)}; {origin(last)}"
            )
    head = ("", "epochs", "like for like: Colobus, it", "ratio", "own recipe: Colobus, it", "ratio")
    return Table(head, rows, measured=how, old=told)


def tries(lines: Sequence[Line], peer: str) -> list[Line]:
    """Return the newest run of each seed of a system that was trained to a score."""
    own = [line for line in lines if line["mode"] == SCORE and line["peer"] == peer]
    newest = {line.get("seed"): line for line in own if "theirs" in line}
    return list(newest.values())


def minutes(line: Line) -> float | None:
    """Return the minutes until the score was reached, or None."""
    seconds = line["theirs"]["reached"]["seconds"]
    return None if seconds is None else seconds / 60


def peers_time(_results: Results) -> Table:
    """Return the table about the minutes until Pong is played at 18."""
    lines = lines_of()
    ours = tries(lines, OURS)
    steps = [line["theirs"]["reached"]["steps"] for line in ours]
    rows = []
    if ours:
        label = f"Colobus, median of {len(ours)} seeds"
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
        for name, line in [("Colobus", line) for line in ours] + others
    ]
    head = ("", "minutes to 18", "steps until then", "after 60 minutes: mean, steps")
    return Table(head, rows, measured=how)


def limits(results: Results) -> Table:
    """Return the table about the shares of the machine's limit."""
    found = results.one("general-limit")
    result = found.line["result"] if found else {"shares": {}}

    def middle(key: str, name: str) -> str:
        return f"{median(result[key][name]):,.0f}" if key in result else ""

    rows = [
        Row(
            (
                name,
                middle("steps_per_s", name),
                middle("limit_of_processes", name),
                listed(result["shares"][name], "{:.2f}"),
            ),
            (found,) if found else (),
        )
        for name in result["shares"]
    ]
    return Table(("", "steps/s", "limit", "share"), rows)


def gpu(_results: Results) -> Table:
    """Return the table about trainings on a GPU, from the lines of `benchmarks.gpu`."""
    lines = lines_of("gpu")
    head = (
        "",
        "graphs",
        "first line after",
        "steps/s",
        "learner learns",
        "actors emulate",
        "score",
    )
    measured = [
        f"`{line['command']}`; commit `{line['machine']['commit']}`; {line['time']}"
        for line in lines
    ]
    return Table(
        (*head, "score"), [trained(line) for line in lines if "training" in line], measured=measured
    )


def trained(line: dict[str, Any]) -> Row:
    """Return the row of a training on a GPU."""
    words, found = line["command"].split(), line["training"]
    given = dict(pairwise(words))
    label = line["cell"]
    if "--actors" in given:
        label = (
            f"{given['--actors']} x {given['--games']} games, {given['--emulators']} emulator "
            f"threads each, rollouts of {given['--length']}"
        )
    score = "-" if found["score"] is None else f"{found['score']:.1f}"
    cells = (
        label,
        "yes" if {"--graphs", "--cuda-graphs"} & set(words) else "no",
        f"{found['first_update_seconds']:.0f} s",
        f"{found['steps_per_s']:,.0f}",
        f"{found['time_learner_learn']:.0%}",
        f"{found['time_actor_emulate']:.0%}",
        f"{score} after {found['steps']:,} steps, {found['seconds']:.0f} s",
    )
    return Row(cells)


def readme() -> list[str]:
    """Return the lines of the README about other systems."""
    lines = lines_of()
    found, ours = pairs(lines), tries(lines, OURS)
    reached = [one for line in ours if (one := minutes(line)) is not None]
    rates = [x for (_, mode), own in found.items() if mode == "own" for x in own[-1]]
    time = f"**{median(reached):.1f}** ({min(reached):.1f} to {max(reached):.1f})"
    others = []
    for peer, name in NAMES.items():
        run, own = tries(lines, peer)[-1], found[peer, "own"][-1]
        took = minutes(run)
        alike = median(line["ratio"] for line in found[peer, "alike"][-1])
        words = f"{took:.1f}" if took else f"not in {run['theirs']['within'] / 60:.0f}"
        label = f"{name} {run['theirs']['version']}"
        cells = [label, words, f"{middle(own, 'theirs'):,.0f}", f"{alike:.1f} times"]
        others.append((took or 1e9, cells))
    rows = [["**Colobus**", time, f"**{middle(rates, 'ours'):,.0f}**", ""]]
    rows += [cells for _, cells in sorted(others)]
    machines = dict.fromkeys(machine(line) for line in ours)
    days = sorted({line["time"][:10] for line in lines if machine(line) in machines})
    where = f"Measured on {', '.join(machines)}, no GPU; {' to '.join(dict.fromkeys(days))}."
    head = ["Pong", "minutes to a mean score of 18", "decisions a second"]
    head.append("with the same network and batches, Colobus is faster")
    return [*markdown(head, rows), "", where]
