"""The sections of docs/results.md about stops, checkpoints, and frozen or killed processes.

A section is on the page once something of it was measured.
"""

from __future__ import annotations

from lookup import Found, Results
from page import Row, Section

NAMES = {"appo": "APPO", "a3c": "A3C, 2 workers", "dqn": "DQN", "pqn": "PQN"}


def exactly(results: Results) -> Section:
    """Return the section about runs that are stopped and go on."""
    rows = [
        Row((f"{NAMES[one.line['result']['who']]}, {where}", *stops(one)), (one,))
        for what, where in (("exact-resume", "on threads"), ("exact-resume-ray", "on Ray"))
        for one in results.seeds(what)
    ]
    return Section(
        "Runs that are stopped and go on",
        "Pong with sticky actions of 0.25 and `--deterministic`, once without a break and once "
        "with stops at random moments: SIGKILL, Ctrl-C or SIGTERM to the program, which is then "
        "resumed, and on Ray SIGKILL to a process of the run. At the end all tensors of the "
        "newest checkpoint, the counters, the replay buffer and the metrics are compared.",
        ("", "stops", "equal bit for bit"),
        tuple(rows),
    )


def stops(found: Found) -> tuple[str, str]:
    """Return how often a run was stopped, and whether it is equal in the end."""
    result = found.line["result"]
    return str(result["stops"]), "yes" if result["equal"] else f"no: {result['different'][0]}"


def checkpoint(results: Results) -> Section:
    """Return the section about what a checkpoint costs."""
    found, rows = results.one("checkpoint-cost"), list[Row]()
    if found:
        result, own = found.line["result"], (found,)
        share = f"{100 * result['share_of_time']:.2f} %"
        rows = [
            Row(("share of the processors' time, one every 10 s", share), own),
            Row(("size, MB", f"{result['megabytes']:.1f}"), own),
            Row(("seconds from the command to the first step of a resumed run",
                 f"{result['seconds_to_first_step']:.1f}"), own),
        ]  # fmt: skip
    return Section(
        "What a checkpoint costs",
        "Pong with `--deterministic` and 16 games in progress, which are part of the checkpoint.",
        ("", "measured"),
        tuple(rows),
    )


def frozen(results: Results) -> Section:
    """Return the section about processes that give no answer."""
    rows = []
    if found := results.one("ray-frozen"):
        result, own = found.line["result"], (found,)
        rows.append(Row(("processes frozen", str(result["frozen"])), own))
        if "missed" in result:
            rows.append(Row(("of them never noticed", str(result["missed"])), own))
        rows.append(Row(("seconds to detect, median", f"{result['median']:.1f}"), own))
        rows.append(Row(("seconds to detect, most", f"{result['most']:.1f}"), own))
    if found := results.one("ray-calm"):
        lost = str(found.line["result"]["lost"])
        rows.append(
            Row(("called lost in 30 minutes beside other work, none being lost", lost), (found,))
        )
    return Section(
        "Ray: processes that are frozen",
        "`dba3c-pong` on Ray with `--faults stop=any:25s`, and without faults beside four "
        "processes that keep the processors busy, with the niceness that Ray gives its own (15).",
        ("", "measured"),
        tuple(rows),
    )


def killed(results: Results) -> Section:
    """Return the section about the score of runs whose processes are killed."""
    rows = []
    for found in results.seeds("ray-killed-score"):
        result = found.line["result"]
        scores = (f"{result[name]:.1f}" for name in ("score", "score_with_kills"))
        counts = (f"{result[name]:,}" for name in ("lost_steps", "hits", "restored"))
        seed = str(found.line["seed"])
        rows.append(
            Row((seed, *scores, f"{result['share']:.2f}", *counts), (found,), f"seed {seed}")
        )
    return Section(
        "Ray: the score with killed processes",
        "`pong` on Ray with `--faults kill=any:30s`, and without: the training score (mean of 50 "
        "games) after 700,000 played steps. Steps that were lost and played again count as "
        "played. The share is that of the score above -21, never killed = 1.",
        ("seed", "never killed", "killed", "share", "steps lost", "hits", "restores"),
        tuple(rows),
    )


def sections(results: Results) -> list[Section]:
    """Return the sections of this module that have figures."""
    found = [exactly(results), checkpoint(results), frozen(results), killed(results)]
    return [section for section in found if section.rows]
