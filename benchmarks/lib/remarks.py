"""Remarks beside single figures of the results: what a reader has to know to judge them.

A remark belongs to one measurement: name, hash of the settings and seed (0: every seed). When a
thing is measured again with other settings, its remarks stay with the old lines. That a thing was
measured before, and with which result, needs no remark: the page says it by itself.
"""

from __future__ import annotations

from benchmarks.lib.ledger import Line

LONGER = (
    "The runs of the first measurement ended at a training score of 18.5. The best checkpoint of "
    "`dba3c-pong` with seed 1 then played 18.02 and, in the games that confirm, 17.86, so it "
    "counted as not solved. Both modes were measured again with runs that go on to 19.5 or for "
    "six minutes."
)

SHARE_ON_RAY = (
    "This is a measurement of 80 seconds. A first one of 36 seconds gave less, because processes "
    "take some of that time to start; the time was then raised for both presets."
)

AGAIN = (
    "On seed 2 this is a second measurement. The first one had a weight of 0.9 for Munchausen's "
    "term from the start: Boxing had 32.8, Freeway 30.9. As Boxing came out badly, the "
    "measurements were stopped after these two. Since then the weight rises from 0, which was "
    "tried on seeds 11 and 12, and all games are measured with that."
)

REMARKS: dict[tuple[str, str, int], str] = {
    ("default-games", "115b9ff8a09c", 2): AGAIN,
    ("default-games", "87aab889c863", 2): AGAIN,
    ("breakout-score", "a6a85119a5bd", 1): (
        "A first start of the run was stopped after a minute, because another program still ran "
        "beside it."
    ),
    ("general-limit", "1e2cef17d345", 1): (
        "In the first measurement `limit.py` measured Pong's small network for Breakout too, so "
        "the limit of processes was that of another network."
    ),
    ("dba3c-time", "0df3c05f0818", 1): (
        f"{LONGER} Seed 1 reached the score with the last checkpoint of these six minutes."
    ),
    ("dba3c-async-time", "40474c214015", 0): LONGER,
    ("ray-limit", "cbab33d4a29d", 1): SHARE_ON_RAY,
    ("ray-limit", "9f5aa112ae7f", 1): (
        f"{SHARE_ON_RAY} During the first one the limit of the machine itself fell by almost half."
    ),
    ("ray-paper", "286c103e1034", 1): (
        "The first measurement had the preset's learning rates, which are for two workers. This "
        "one has rates for steps of 60 gradients."
    ),
    ("ray-killed", "18e5b235c036", 2): (
        "The first start failed: a tracker that was lost five times ended the run, although the "
        "workers had made steps in between. That was a mistake in the code; it was repaired."
    ),
    ("pong-time", "634bac5e1c89", 1): (
        "At commit `6ada53e7825c` the five seeds had been trained before, and only this one was "
        "evaluated: not solved, its best checkpoint played 18.8 and 17.5 in the games that "
        "confirm. Those lines were not kept, and all five were measured anew."
    ),
}


def remark(line: Line) -> str:
    """Return the remark about a finished line, or ""."""
    return next(
        (
            text
            for (what, settings, seed), text in REMARKS.items()
            if (what, settings) == (line["what"], line["settings"]) and seed in (0, line["seed"])
        ),
        "",
    )
