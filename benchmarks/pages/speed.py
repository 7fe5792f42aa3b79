"""Sections about speed: the machine's limit, other systems, and the code of version 0.1."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.lib.ledger import NAME, RESULTS, Ledger, Line, Results
from benchmarks.lib.page import Row, Section, listed, machine, origin
from benchmarks.pairs import RESULTS as PAIRS
from benchmarks.peers.matches import OURS, SCORE, pairs_in
from gelada.core.files import read_lines

PEERS = RESULTS / "peers.jsonl"

NAMES = {
    "sb3-a2c": "Stable-Baselines3 A2C",
    "sb3-ppo": "Stable-Baselines3 PPO",
    "rllib-appo": "RLlib APPO",
    "sample-factory-appo": "Sample Factory APPO",
    "tianshou-ppo": "Tianshou PPO",
}

REMARKS = (
    "RLlib's own network is not among ours, so both play Nature's like for like; each line of "
    "[`peers.jsonl`](../../benchmarks/results/peers.jsonl) says how like the two are.",
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
                told.append(f"{label}, {mode}: {ratios} ({machine(old[-1])}; {origin(old[-1])}).")
            last = groups[-1][-1]
            how.append(
                f"{label}, {mode}: `{last['ours']['command']}` and `{last['theirs']['command']}`; "
                f"{machine(last)}; {origin(last)}"
            )
    return Section(
        "Beside other systems: steps a second",
        "`python -m benchmarks.peers` runs each system and Gelada in turn, three times each, on "
        "Pong. Rates are decisions of the agent a second (4 frames each) that were acted and "
        "learned: medians of three; a ratio is the median of three pairs. *Like for like* is "
        "Gelada with the other system's network, input of 84x84, epochs, minibatch, games and "
        "steps of a batch; the precision is free, and Gelada chose bfloat16. *Own recipe* is the "
        "other system as its documentation has it for Atari, beside `gelada train pong`.",
        ("", "epochs", "like for like: Gelada, it", "ratio", "own recipe: Gelada, it", "ratio"),
        tuple(rows),
        remarks=REMARKS,
        measured=how,
        old=tuple(told),
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
        "on the same machine (`python -m benchmarks.peers --score 18`). For Gelada the mean is "
        "that of the newest 50 games and the clock starts with the command. Another system has "
        "one try of an hour, its newest 20 games count, and its clock starts when it begins to "
        "learn.",
        ("", "minutes to 18", "steps until then", "after 60 minutes: mean, steps"),
        tuple(rows),
        "This says how fast a system is on two cores, not how well it learns: at a few hundred "
        "steps a second it has seen few games after an hour.",
        measured=how,
    )


def shares(results: Results) -> Section:
    """Return the section about the shares of the machine's limit."""
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
    return Section(
        "Shares of the machine's limit",
        "Three measurements in turn; columns are medians; [how the limit is put "
        "together](../speed.md#the-limit). `gelada bench` measures the limit with a process on "
        "each core.",
        ("", "steps/s", "limit", "share"),
        tuple(rows),
    )


def where(measured: Line) -> str:
    """Return machine, day and commit of a measurement."""
    commit = measured["machine"].get("commit") or "unknown"
    return f"{machine(measured)}; {measured['time'][:10]}, commit `{commit}`"


FIRST_VERSION = "b8731a0"
"""Commit of version 0.1."""

COMPARED = {
    "pong": "Pong, steps/s",
    "breakout": "Breakout, steps/s",
    "pong memory": "Pong, largest memory, MB",
    "breakout memory": "Breakout, largest memory, MB",
    f"{NAME} --help": "`gelada --help`, s",
    f"import {NAME}": "`import gelada`, s",
}


def beside_first_version(lines: Sequence[Line]) -> Section | None:
    """Return the section about pairs with version 0.1; None without any."""
    of = {
        what: [line for line in lines if (line["other"], line["what"]) == (FIRST_VERSION, what)]
        for what in COMPARED
    }
    rows = [Row((COMPARED[what], *_compared(own))) for what, own in of.items() if own]
    if not rows:
        return None
    command = f"`python -m benchmarks.pairs {FIRST_VERSION} --pairs"
    measured = [f"{command} {_many(own[-1])}`; {where(own[-1])}" for own in of.values() if own]
    return Section(
        "Beside version 0.1",
        "Runs of 45 seconds of version 0.1 and of the code of the commit below in turn. A ratio is "
        "today's figure to 0.1's, of times 0.1's to today's, so above 1 is better but for memory; "
        "the median, and in brackets each pair, of the commands the median alone. The newest runs "
        "of games were measured because the ones before came out badly. Every other pair of theirs "
        "begins with today's code; in earlier ones 0.1 always ran first. Whether that explains "
        "the difference these few pairs do not tell. Single ratios differ by more than a quarter, "
        "so for speeds the median of all pairs is the better estimate. Earlier pairs are "
        "of earlier commits.",
        ("", "0.1, median", "today, median", "ratio", "earlier medians (pairs)", "all pairs"),
        tuple(rows),
        measured=list(dict.fromkeys(measured)),
    )


def _many(line: Line) -> int:
    """Return how many pairs of runs were asked for; 0: of commands only."""
    return 0 if line["unit"] == "s" else len(line["pairs"])


def _compared(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the cells of the newest of these lines, the medians of the others and that of all."""
    *older, newest = lines
    digits = ".4f" if newest["unit"] == "s" else ",.0f"
    before, now = (median(pair[i] for pair in newest["pairs"]) for i in (0, 1))
    newest_ratio = listed(newest["ratios"], "{:.3f}")
    return (
        format(before, digits),
        format(now, digits),
        f"**{newest['median_ratio']:.3f}**" if newest["unit"] == "s" else newest_ratio,
        ", ".join(f"{line['median_ratio']:.3f} ({len(line['pairs'])})" for line in older),
        f"{median(ratio for line in lines for ratio in line['ratios']):.3f}",
    )


def sections(results: Results) -> list[Section]:
    """Return the sections of the page; what is not measured yet is left out."""
    peers = Ledger(PEERS).lines()
    first = beside_first_version(read_lines(PAIRS))
    return [shares(results), speed(peers), to_score(peers), *([first] if first else [])]
