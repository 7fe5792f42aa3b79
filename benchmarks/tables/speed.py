"""Tables about speed: the machine's limit, and other systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from benchmarks.lib.ledger import RESULTS, Ledger, Line, Results
from benchmarks.lib.table import MISSING, Row, Table, listed, machine, markdown, origin, score_of
from benchmarks.peers.counting import MARKS
from benchmarks.peers.matches import OURS, SCORE

NAMES = {
    "sb3-a2c": "Stable-Baselines3 A2C",
    "sb3-ppo": "Stable-Baselines3 PPO",
    "rllib-appo": "RLlib APPO",
    "sample-factory-appo": "Sample Factory APPO",
    "tianshou-ppo": "Tianshou PPO",
}

PLAYED = ("space_invaders", "beam_rider")
"""Games on which networks of ours and of others play by one protocol."""

PLAYERS = {
    OURS: "Colobus",
    "sb3-dqn": "Stable-Baselines3 DQN",
    "sb3-ppo": NAMES["sb3-ppo"],
    "sample-factory-appo": NAMES["sample-factory-appo"],
}
"""Those systems, and how they are called."""


def runs(peer: str, mode: str) -> list[Line]:
    """Return the runs of a system on Pong that came to an end, oldest first."""
    of = (peer, mode, "pong")
    lines = Ledger(RESULTS / "peers.jsonl").lines()
    return [x for x in lines if (x["peer"], x["mode"], x["game"]) == of and "theirs" in x]


def pairs(peer: str, mode: str) -> list[list[Line]]:
    """Return the runs of a system beside ours, in groups of one version and commit."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in runs(peer, mode):
        group = line["theirs"]["version"], line["machine"].get("commit", "")
        found.setdefault(group, []).append(line)
    return list(found.values())


def tries(peer: str) -> list[Line]:
    """Return the newest run of each seed of a system that was trained to a score."""
    return list({line.get("seed"): line for line in runs(peer, SCORE)}.values())


def middle(lines: Sequence[Line], side: str) -> str:
    """Return the median of one side's rates."""
    return f"{median(line[side]['steps_per_s'] for line in lines):,.0f}"


def ratios(lines: Sequence[Line]) -> str:
    """Return the ratios of pairs."""
    return listed([line["ratio"] for line in lines], "{:.2f}")


def where(line: Line) -> str:
    """Return the machine of a line, and its origin."""
    return f"{machine(line)}; {origin(line)}"


def peers_speed(_results: Results) -> Table:
    """Return the table about steps a second beside other systems."""
    rows, told, how = [], list[str](), []
    for peer, name in NAMES.items():
        modes = {"like for like": pairs(peer, "alike"), "own recipe": pairs(peer, "own")}
        theirs = modes["like for like"][-1][-1]["theirs"]
        label, cells = f"{name} {theirs['version']}", [str(theirs["passes"])]
        for mode, (*before, newest) in modes.items():
            cells += [f"{middle(newest, 'ours')}, {middle(newest, 'theirs')}", ratios(newest)]
            told += [f"{label}, {mode}: {ratios(old)} ({where(old[-1])})." for old in before]
            last = newest[-1]
            both = f"`{last['ours']['command']}` and `{last['theirs']['command']}`"
            how.append(f"{label}, {mode}: {both}; {where(last)}")
        rows.append(Row((label, *cells)))
    head = ("", "epochs", "like for like: Colobus, it", "ratio", "own recipe: Colobus, it", "ratio")
    return Table(head, rows, measured=how, old=told)


def minutes(line: Line) -> float | None:
    """Return the minutes until the score was reached, or None."""
    seconds = line["theirs"]["reached"]["seconds"]
    return None if seconds is None else seconds / 60


def in_words(line: Line) -> str:
    """Return the minutes until the score was reached, or that it was not."""
    found = minutes(line)
    return f"not in {line['theirs']['within'] / 60:.0f}" if found is None else f"{found:.1f}"


def peers_time(_results: Results) -> Table:
    """Return the table about the minutes until Pong is played at 18."""
    ours = tries(OURS)
    steps = [line["theirs"]["reached"]["steps"] for line in ours]
    label = f"Colobus, median of {len(ours)} seeds"
    cells = (label, listed([minutes(line) for line in ours], "{:.1f}"), listed(steps, "{:,.0f}"))
    rows = [Row((*cells, ""))]
    others = [(name, line) for peer, name in NAMES.items() for line in tries(peer)]
    others.sort(key=lambda one: minutes(one[1]) or 1e9)
    for name, line in others:
        run = line["theirs"]
        last = ("", f"{run['last']:g}, {run['curve'][-1][1]:,}")
        reached = (f"{run['reached']['steps'] or 0:,}", "")
        rows.append(Row((name, in_words(line), *(reached if minutes(line) else last))))
    every = [("Colobus", line) for line in ours] + others
    how = [f"{name}: `{line['theirs']['command']}`; {where(line)}" for name, line in every]
    head = ("", "minutes to 18", "steps until then", "after 60 minutes: mean, steps")
    return Table(head, rows, measured=how)


def played(results: Results, game: str) -> dict[str, dict[str, list[Line]]]:
    """Return the networks of a game that played, by system and command, the earliest first."""
    lines = [x for x in Ledger(RESULTS / "beside.jsonl").lines() if x["game"] == game]
    for one in results.seeds("hour-games", game):
        about = one.line["result"]
        given = {"command": about["command"], "system": OURS}
        given |= {name: one.line[name] for name in ("machine", "time")}
        every = (*about["early"].values(), about)
        lines += [at | given | {"mean": at["score"]} for at in every]
    found: dict[str, dict[str, list[Line]]] = {system: {} for system in PLAYERS}
    for line in sorted(lines, key=lambda line: line["seconds"]):
        found[line["system"]].setdefault(line["command"], []).append(line)
    return found


def beside(results: Results) -> Table:
    """Return the table of what networks of ours and of others score after some minutes.

    The last column is how many times sooner a network of ours has the score of another's last one.
    Ours play after some of their minutes only: it may have been sooner still.
    """
    rows, how = [], list[str]()
    for game in PLAYED:
        found = played(results, game)
        ours = [line for own in found[OURS].values() for line in own]
        for system, name in PLAYERS.items():
            for command, own in found[system].items():
                near = {min(MARKS, key=lambda mark: abs(mark - x["seconds"])): x for x in own}
                at = [near.get(mark) for mark in MARKS]
                cells = [score_of(x["mean"], x["standard_error"]) if x else "" for x in at]
                last = own[-1]
                until = [x["seconds"] for x in ours if x["mean"] >= last["mean"]]
                sooner = f"**{last['seconds'] / min(until):.1f}**" if until else "never"
                rows.append(Row((game, name, *cells, "" if system == OURS else sooner)))
                how.append(f"{game}, {name}: `{command}`; {where(last)}")
            if not found[system]:
                rows.append(Row((game, name, MISSING, *[""] * len(MARKS))))
    head = ("game", "", *(f"{mark // 60} min" for mark in MARKS), "Colobus sooner")
    return Table(head, rows, measured=how)


def limits(results: Results) -> Table:
    """Return the table about the shares of the machine's limit."""
    rows = []
    for found in results.seeds("general-limit"):
        result = found.line["result"]
        for name, shares in result["shares"].items():
            rates = (result[key][name] for key in ("steps_per_s", "limit_of_processes"))
            cells = (*(f"{median(rate):,.0f}" for rate in rates), listed(shares, "{:.2f}"))
            rows.append(Row((name, *cells), (found,)))
    return Table(("", "steps/s", "limit", "share"), rows)


def readme() -> list[str]:
    """Return the lines of the README about other systems."""
    ours = tries(OURS)
    reached = [math.inf if (one := minutes(line)) is None else one for line in ours]
    rates = middle([line for peer in NAMES for line in pairs(peer, "own")[-1]], "ours")
    time = f"**{median(reached):.1f}** ({min(reached):.1f} to {max(reached):.1f})"
    others = []
    for peer, name in NAMES.items():
        run = tries(peer)[-1]
        alike = median(line["ratio"] for line in pairs(peer, "alike")[-1])
        rate = middle(pairs(peer, "own")[-1], "theirs")
        label = f"{name} {run['theirs']['version']}"
        others.append((minutes(run) or 1e9, [label, in_words(run), rate, f"{alike:.1f} times"]))
    rows = [["**Colobus**", time, f"**{rates}**", ""], *(cells for _, cells in sorted(others))]
    machines = dict.fromkeys(machine(line) for line in ours)
    lines = Ledger(RESULTS / "peers.jsonl").lines()
    days = sorted({line["time"][:10] for line in lines if machine(line) in machines})
    told = f"Measured on {', '.join(machines)}, no GPU; {' to '.join(dict.fromkeys(days))}."
    head = ["Pong", "minutes to a mean score of 18", "decisions a second"]
    head.append("with the same network and batches, Colobus is faster")
    return [*markdown(head, rows), "", told]
