"""How the numbers of a report were measured: protocol and machine of each, and the same as CSV."""

from __future__ import annotations

from collections.abc import Sequence

from colobus.envs.make import is_atari
from colobus.report.format import DASH, Block, Heading, Table, Text, as_csv
from colobus.report.results import TRAINING_GAMES, Results, RunScore, played
from colobus.report.statistics import count, plus_minus
from colobus.runs.folder import gpu_of
from colobus.runs.listing import differences, in_words
from colobus.runs.read import EvaluationFile, RunFolder

DECISIVE = {
    "sticky": "sticky actions",
    "noop_max": "no-op starts below",
    "max_frames": "at most so many frames:",
    "frame_skip": "frame skip",
}
"""Settings of a game that make scores easier or harder to reach, in words."""


def how_measured(results: Results) -> list[Block]:
    """Return the protocol and the machine of every number."""
    rows = [
        {
            "run": result.run.name,
            "group": result.group,
            "seed>": "" if result.run.seed is None else str(result.run.seed),
            "score>": plus_minus(result.score, result.standard_error),
            "steps>": f"{result.steps:,}",
            "protocol": protocol_line(result),
            "machine": machine_line(result.run),
        }
        for result in results.all
    ]
    rows += [
        dict.fromkeys(rows[0], "")
        | {"run": run.name, "group": group, "score>": DASH, "machine": machine_line(run)}
        | {"seed>": "" if run.seed is None else str(run.seed), "protocol": "not evaluated so"}
        for run, group, _ in results.unscored
    ]
    blocks: list[Block] = [
        Heading("How every number was measured"),
        Table.of(rows),
        Text("A score is ± the standard error over its games, where it is known."),
    ]
    if differing := differences([runs[0] for runs in results.groups.values()]):
        table = tuple((k, *map(in_words, v)) for k, v in differing.items() if k != "seed")
        blocks += [Heading("Settings that differ"), Table(("setting", *results.groups), table)]
    return blocks


def protocol_line(result: RunScore) -> str:
    """Return how the games of a result were played, in one line."""
    if result.evaluation is None:
        return f"mean of the last {result.games} {TRAINING_GAMES}"
    about, games = result.evaluation.about, played(result)
    share = about.get("epsilon")  # of random actions; None for another policy
    parts = [
        f"{result.protocol}: {result.evaluation.played}",
        f"actions {result.evaluation.policy}" + (f" {share}" if share is not None else ""),
        f"starts {starts}" if (starts := starts_of(result.evaluation)) else "",
        *is_atari(games.game)
        * [  # other games have no emulator
            "all 18 actions" if games.full_actions else "",
            f"sticky actions {games.sticky:g}",
            f"at most {about['most_noops']} no-ops" if "most_noops" in about else "",
            f"at most {games.max_frames:,} frames",
            f"frame skip {games.frame_skip}",
        ],
        f"seed {about['seed']}" if "seed" in about else "",
    ]
    return ", ".join(part for part in parts if part)


def differences_in_play(results: Sequence[RunScore]) -> list[str]:
    """Return what differs in how the games of results were played, in words."""
    settings = [own for own in map(played, results) if is_atari(own.game)]
    found = [
        f"{word} {' or '.join(sorted({f'{getattr(one, name):,}' for one in settings}))}"
        for name, word in DECISIVE.items()
        if len({getattr(one, name) for one in settings}) > 1
    ]
    evaluations = [one.evaluation for one in results if one.evaluation]
    if len(policies := sorted({one.policy for one in evaluations})) > 1:
        found.append(f"{' or '.join(policies)} actions")
    if len({starts_of(one) for one in evaluations}) > 1:
        found.append("start states of several files")
    return found


def starts_of(evaluation: EvaluationFile) -> str:
    """Return the file of an evaluation's start states with its checksum; "" if it has none."""
    starts = evaluation.about.get("starts")
    if not isinstance(starts, dict):
        return ""
    return f"{starts.get('file', '?')} ({str(starts.get('sha256', '?'))[:12]})"


def machine_line(run: RunFolder) -> str:
    """Return what a run was made with, in one line."""
    about = run.about
    cores = f"{in_words(about['cores'])} cores" if "cores" in about else ""
    parts = [str(about.get("processor", "")), cores, gpu_of(about)]
    names = ("colobus", "torch", "commit", "precision", "time")
    parts += [f"{name} {in_words(about[name])}" for name in names if name in about]
    if run.curve.resumed:
        parts.append(f"went back to a checkpoint {count(len(run.curve.resumed), 'time')}")
    return ", ".join(part for part in parts if part) or "unknown"


def results_csv(results: Results) -> str:
    """Return a line for each run with its score, protocol and machine."""
    rows = [
        {
            "run": one.run.name,
            "group": one.group,
            "game": one.game,
            "seed": one.run.seed,
            "score": one.score,
            "standard_error": one.standard_error,
            "games": one.games,
            "human_normalised_percent": one.human_normalised,
            "steps": one.steps,
            "frames": one.frames,
            "seconds": one.seconds,
            "protocol": protocol_line(one),
            "machine": machine_line(one.run),
        }
        for one in results.all
    ]
    known = dict.fromkeys(rows[0])
    for run, group, game in results.unscored:
        own = {"run": run.name, "group": group, "game": game, "seed": run.seed}
        rows.append(known | own | {"protocol": "not evaluated so", "machine": machine_line(run)})
    return as_csv(rows)
