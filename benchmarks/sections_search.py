"""The section of docs/results.md about the search for one recipe (`halving.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from candidates import APPO, DQN, PQN, Settings, whole
from ledger import Line
from page import Row, Section, machine, origin
from tried import GAMES, LEVELS, Run, Search, estimated

PLAIN = {"dqn": DQN, "pqn": PQN, "appo": APPO}
"""What the candidates of each family are compared with."""

HEAD = ("", "minutes, seed", *GAMES, "value", "IQM", "steps a second", "family and what differs")

NAMES = {
    "frames": "frames and torso {}",
    "values": "values as {}",
    "duelling": "duelling heads",
    "lam": "lambda {}",
    "longest": "random actions of at most {} steps",
    "anneal": "annealed over {} steps",
    "learn": "{} samples a step",
    "target": "target network every {} updates",
    "capacity": "buffer of {} steps",
    "kl": "KL target {} million steps",
    "predict": "prediction",
}
"""What stands for a setting and its value; other settings stand with their names."""

NONE = {"target": "no target network", "duelling": "no duelling heads", "predict": "no prediction"}
"""What stands for a setting that is off."""


def sections(lines: Iterable[Line]) -> list[Section]:
    """Return the section once the search, whose file has these lines, has a finished run."""
    found = Search(lines)
    runs = list(found.runs.values())
    if not runs:
        return []
    return [
        Section(
            "The search for one recipe",
            "`python benchmarks/halving.py`: candidates for the default of all games. Each plays "
            f"{len(GAMES)} games, alone on the machine, for {LEVELS[0].minutes:g} minutes; of each "
            f"{LEVELS[0].candidates} the best {LEVELS[1].candidates} go on to "
            f"{LEVELS[1].minutes:g} minutes, and the best of those plays with another seed. A "
            "score is the mean of the last 50 training games. The value is the mean of the games' "
            "shares: 0 is random play, 1 the best public curve at 6 million frames. One run tells "
            "little: where a candidate has two seeds, they show how far apart equal settings come "
            "out. The IQM is that of the human-normalised scores of six games, if all runs of "
            "Boxing are above their middle half and all of Beam Rider below. Some days had "
            "machines twice as fast as others, so scores tell candidates of one round apart (0 to "
            f"{LEVELS[0].candidates - 1} are the first), and not rounds. Candidate 4 had "
            "Munchausen's rewards of all later steps in each return; those after it have only a "
            "step's own.\n\n"
            "What differs is told against the plain form of the family. "
            + " ".join(f"{family}: {words(own)}." for family, own in PLAIN.items()),
            HEAD,
            tuple(Row(tuple(cells)) for cells in rows(found)),
            after="![Score of each game against minutes, a line for each "
            "run](pictures/search.png)\n\nOf the candidates that went on to "
            f"{LEVELS[1].minutes:g} minutes each has a colour; dashed lines are its runs with "
            "another seed.",
            measured=origins(runs),
        )
    ]


def rows(found: Search) -> list[tuple[str, ...]]:
    """Return the rows of the table: the highest level first, and in it the best candidate."""
    levels = reversed(range(len(LEVELS)))
    return [row(found, one, level) for level in levels for one in by_value(found, level)]


def by_value(found: Search, level: int) -> list[int]:
    """Return the candidates with a run at a level, those with all games first, the best first."""
    own = {run.candidate for run in found.runs if run.level == level}
    values = {one: found.value(one, level) for one in own}
    return sorted(own, key=lambda one: (values[one] is None, -(values[one] or 0.0), one))


def row(found: Search, number: int, level: int) -> tuple[str, ...]:
    """Return a candidate's row at a level."""
    lines = {game: found.runs.get(Run(number, game, level)) for game in GAMES}
    scores = ["" if line is None else score_of(line) for line in lines.values()]
    scored = {game: line["score"] for game, line in lines.items() if line is not None}
    value = found.value(number, level)
    return (
        str(number),
        f"{LEVELS[level].minutes:g}, {LEVELS[level].seed}",
        *scores,
        "" if value is None else f"**{value:.2f}**",
        "" if value is None else f"{estimated(scored):.2f}",
        speed_of([line for line in lines.values() if line is not None]),
        different(found.settings[number]),
    )


def score_of(line: Line) -> str:
    """Return the score of a run."""
    if line["score"] is None:
        return "diverged" if line["trouble"] else "none"
    return f"{line['score']:,.0f}"


def speed_of(runs: list[Line]) -> str:
    """Return the steps a second of runs all together."""
    seconds = sum(run["seconds"] for run in runs)
    return f"{sum(run['steps'] for run in runs) / seconds:,.0f}" if seconds else ""


def different(settings: Settings) -> str:
    """Return the family, and where the settings differ from its plain form."""
    family = settings["family"]
    plain = PLAIN[family]
    other = {n: value for n, value in whole(settings).items() if value != plain.get(n)}
    return f"{family}: {words(other)}" if other else f"{family}, plain"


def words(settings: Settings) -> str:
    """Return settings in words."""
    named = {name: value for name, value in settings.items() if name != "family"}
    return ", ".join(
        NONE[name]
        if name in NONE and not value
        else NAMES.get(name, f"{name} {{}}").format(worded(value))
        for name, value in named.items()
    )


def worded(value: object) -> str:
    """Return a value in words."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def origins(runs: list[Line]) -> list[str]:
    """Return how many runs were made where and when."""
    count: dict[str, int] = {}
    for line in runs:
        text = f"{machine(line)}; {origin(line)}"
        count[text] = count.get(text, 0) + 1
    steps = fmean(line["steps"] / max(line["seconds"], 1e-9) for line in runs)
    told = f"{len(runs)} runs, on average {steps:,.0f} steps a second"
    return [told, *(f"{number} runs: {text}" for text, number in count.items())]
