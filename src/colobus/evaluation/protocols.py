"""Named evaluation protocols, and the result of an evaluation.

A score without its protocol means nothing (Machado et al. 2018), so an `Evaluation` carries both
and prints both.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median, pstdev, quantiles
from typing import Any, NamedTuple

from colobus.core.errors import ColobusError, nearest
from colobus.core.fields import digits_of, with_error
from colobus.core.notebook import html_table
from colobus.core.types import Version
from colobus.envs.api import GameSettings
from colobus.envs.make import agents, is_atari
from colobus.evaluation.agent import PolicyName, describe
from colobus.evaluation.scores import baselines, normalised
from colobus.evaluation.start_states import summary_line
from colobus.runs.folder import EVALUATIONS
from colobus.runs.read import write_new


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol. Where a setting is None, that of the run holds."""

    name: str
    episodes: int  # default number of games
    about: str  # one line that describes the protocol, with its source
    sticky: float | None = None  # probability of sticky actions
    noop_max: int | None = None  # as in `GameSettings`: one more than the most no-ops
    max_frames: int | None = None  # frame limit of a game in emulator frames
    stuck: int | None = None  # limit of a `StuckGuard`; None for no guard
    policy: PolicyName | None = None  # of the protocol; None for that of the agent
    starts: bool = False
    """Games begin at start states (`colobus.evaluation.start_states`); ``max_frames`` then counts
    the frames before them too."""

    def settings(self, games: GameSettings) -> GameSettings:
        """Return how games are played under this protocol by an agent trained on ``games``.

        Raises:
            ColobusError: if the protocol sets sticky actions or no-ops and the game is no Atari
                game.
        """
        own = {
            name: value
            for name in ("sticky", "noop_max", "max_frames")
            if (value := getattr(self, name)) is not None
        }
        if not is_atari(games.game) and {"sticky", "noop_max"} & own.keys():
            raise ColobusError(
                f"protocol {self.name!r} is for Atari games and this run plays {games.game}; take "
                "protocol 'training'"
            )
        return replace(games, **own, life_loss_ends=False)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("training", 100, "games as in training"),
        Protocol("noop", 30, "no-op starts (Mnih et al. 2015)", 0.0, 31, 18_000),
        Protocol("sticky", 100, "sticky actions (Machado et al. 2018)", 0.25, 0, 108_000),
        Protocol(
            "dba3c",
            50,
            "mean of 50 consecutive games (Adamski et al. 2018)",
            max_frames=160_000,
            stuck=30,
            policy="greedy",
        ),
        Protocol(
            "human", 100, "from moments of games (Nair et al. 2015)", 0, 0, 108_000, starts=True
        ),
    )
}


def find_protocol(name: str) -> Protocol:
    """Return the protocol of that name.

    Raises:
        ColobusError: if there is none; the message has the known names.
    """
    if name not in PROTOCOLS:
        raise ColobusError(f"unknown protocol {name!r}: {nearest(str(name), PROTOCOLS)}")
    return PROTOCOLS[name]


class PlayedGame(NamedTuple):
    """One full game."""

    score: float  # raw return
    steps: int  # agent decisions
    truncated: bool  # ended by the frame limit
    pressed: int = 0  # times that the stuck guard pressed FIRE
    start: int | None = None  # number of its start state


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation: the scores of all games, and the protocol that was played."""

    protocol: Protocol
    settings: GameSettings
    action_names: tuple[str, ...]  # the action set, in the order of the indices
    policy: PolicyName
    epsilon: float  # share of random actions under the policy epsilon
    seed: int
    steps: int  # environment steps the agent had learned from
    seconds: float | None  # of training until then; None: the checkpoint does not say
    version: Version  # of the parameters
    width: int  # units of the hidden layer that the network's heads look at
    episodes: int  # asked for
    games: tuple[PlayedGame, ...]
    starts: dict[str, Any] | None = None  # `StartStates.summary` of its start states
    endless: int = 0  # games that had no end and were cut off
    left_out: int = 0  # games that were not begun because of those
    too_late: int = 0  # games that were not begun within the minutes
    minutes: float | None = None  # after which no game was begun

    def _repr_html_(self) -> str:
        score, (low, high) = with_error(self.mean, self.standard_error), self.interval
        if not math.isnan(low):
            n = digits_of(self.standard_error)
            score += f" (standard error), 95 %: {low:.{n}f} to {high:.{n}f}"
        share = self.human_normalised
        rows = {"mean score": score if self.games else "no game was over"}
        rows |= {"human-normalised": "" if share is None else f"{share:.1f} %"}
        rows |= {"games": f"{len(self.games)} of {self.episodes}", "steps": f"{self.steps:,}"}
        rows |= {"policy": describe(self.policy, self.epsilon), "seed": f"{self.seed}"}
        return html_table(f"{self.settings.game}, protocol {self.protocol.name}", rows)

    @property
    def interrupted(self) -> bool:
        """Whether games are missing that were begun, or that nothing kept from being begun."""
        return len(self.games) + self.left_out + self.too_late < self.episodes

    @property
    def fire_at_reset(self) -> bool:
        """Whether FIRE is pressed at the start of each game."""
        return self.settings.fire_at_reset and "FIRE" in self.action_names and not self.starts

    @property
    def most_noops(self) -> int:
        """Most no-ops at the start of a game; FIRE at reset takes the place of one of them."""
        return max(self.settings.noop_max - 1 - self.fire_at_reset, 0)

    @property
    def scores(self) -> list[float]:
        """Raw returns of all games."""
        return [game.score for game in self.games]

    @property
    def lengths(self) -> list[int]:
        """Steps of all games."""
        return [game.steps for game in self.games]

    @property
    def mean(self) -> float:
        """Mean score; nan without games."""
        return fmean(self.scores) if self.games else math.nan

    @property
    def standard_error(self) -> float:
        """Standard error of the mean; nan below two games, or two start states.

        Scores of the agents of one game, and of games from one start state, depend on each other:
        of G such groups with the sums D of score - mean it is sqrt(G / (G - 1) * sum of D²) / n.
        """
        mean, together = self.mean, agents(self.settings)
        groups: defaultdict[int, float] = defaultdict(float)
        for i, game in enumerate(self.games):
            groups[i // together if game.start is None else game.start] += game.score - mean
        if (count := len(groups)) < 2:
            return math.nan
        return math.sqrt(count / (count - 1)) * math.hypot(*groups.values()) / len(self.games)

    @property
    def standard_deviation(self) -> float:
        """Deviation of the games' scores from their mean, as others state it (numpy's ``std``)."""
        return pstdev(self.scores) if self.games else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean: 1.96 standard errors to both sides; nan below two games."""
        return self.mean - 1.96 * self.standard_error, self.mean + 1.96 * self.standard_error

    @property
    def median(self) -> float:
        """Median score; nan without games."""
        return median(self.scores) if self.games else math.nan

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile, ends included (method 7 of Hyndman and Fan 1996).

        nan below two games.
        """
        if len(self.games) < 2:
            return math.nan, math.nan
        lower, _, upper = quantiles(self.scores, n=4, method="inclusive")
        return lower, upper

    @property
    def human_normalised(self) -> float | None:
        """Human-normalised mean in per cent; None without games or without reference scores."""
        if not self.games:
            return None
        return normalised(self.mean, self.settings.game, self.protocol.starts)

    @property
    def min(self) -> float:
        """Lowest score; nan without games."""
        return min(self.scores, default=math.nan)

    @property
    def max(self) -> float:
        """Highest score; nan without games."""
        return max(self.scores, default=math.nan)

    def lines(self) -> list[str]:
        """Return the result, the protocol and every score as lines to print."""
        settings, count = self.settings, len(self.games)
        if not self.games:
            return [f"{settings.game}: interrupted before the first game was over"]
        own = self.protocol.episodes
        kind = "games, each from one start" if self.starts else "full games"
        instead = f" instead of {own}" if self.episodes != own or self.too_late else ""
        spread = (
            f" (standard error), median {self.median:.7g}, quartiles "
            f"{self.quartiles[0]:.7g} and {self.quartiles[1]:.7g}, min {self.min:.7g}, max "
            f"{self.max:.7g}"
        ) * (not math.isnan(self.standard_error))
        lines = [
            f"{settings.game} after {self.steps:,} steps: mean "
            f"{with_error(self.mean, self.standard_error)}{spread}",
            *self._beside_a_human(),
            f"protocol {self.protocol.name}: {self.protocol.about}; {count} {kind}{instead}, raw "
            f"rewards, {describe(self.policy, self.epsilon)}, {len(self.action_names)} actions, "
            f"seed {self.seed}",
        ]
        if self.starts:
            lines.append(summary_line(self.starts))
        if is_atari(settings.game):
            lines.append(self._emulator_line())
        if self.protocol.stuck is not None:
            pressed = sum(game.pressed for game in self.games)
            lines.append(
                f"stuck guard: after {self.protocol.stuck} equal actions in a row FIRE (action 1 "
                f"in a game without FIRE) was pressed once: {pressed} times in all games"
            )
        if self.too_late:
            lines.append(
                f"{count} of {self.episodes} games: after {self.minutes:g} minutes no further game "
                "was begun; those that were being played went on to their end"
            )
        if self.endless:
            lines.append(
                f"{self.endless} of these games had no end and were cut off after "
                f"{max(self.lengths):,} steps, so {self.left_out} others were not begun; wrap the "
                "environment in gymnasium.wrappers.TimeLimit"
            )
        if self.interrupted:
            lines.append(
                f"interrupted after {count} of {self.episodes} games; long games are missing "
                "more often than short ones, so the mean is not that of the protocol"
            )
        # seven digits: millions are whole, and the rounding of float32 rewards is not seen
        scores = [f"{score:.7g}" for score in self.scores]
        rows = ["  " + " ".join(scores[i : i + 10]) for i in range(0, count, 10)]
        return [*lines, f"mean length {fmean(self.lengths):,.0f} steps; scores:", *rows]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; a statistic that does not exist is None."""
        names = ("mean", "standard_deviation", "standard_error", "median", "min", "max")
        numbers = {name: getattr(self, name) for name in names}
        numbers["lower_quartile"], numbers["upper_quartile"] = self.quartiles
        random, human = baselines(self.settings.game, self.protocol.starts) or (None, None)
        return {
            "protocol": self.protocol.name,
            "about": self.protocol.about,
            "steps": self.steps,
            "seconds": self.seconds,
            "epoch": self.version.incarnation,
            "version": self.version.number,
            "width": self.width,
            "policy": self.policy,
            "epsilon": self.epsilon if self.policy == "epsilon" else None,
            "seed": self.seed,
            "episodes": len(self.games),
            "episodes_asked": self.episodes,
            "episodes_of_protocol": self.protocol.episodes,
            "interrupted": self.interrupted,
            "endless": self.endless,
            "minutes": self.minutes,
            "too_late": self.too_late,
            "full_games": self.starts is None,
            "starts": self.starts,
            "raw_rewards": True,
            "action_set_size": len(self.action_names),
            "action_set": self.action_names,
            "fire_at_reset": self.fire_at_reset,
            "most_noops": self.most_noops,
            "settings": asdict(self.settings),
            **{name: None if math.isnan(value) else value for name, value in numbers.items()},
            "human_normalised": self.human_normalised,
            "random_score": random,
            "human_score": human,
            "scores": self.scores,
            "lengths": self.lengths,
            "truncated": [game.truncated for game in self.games],
            "stuck": self.protocol.stuck,
            "pressed": [game.pressed for game in self.games],
        }

    def save(self, folder: Path) -> Path:
        """Write a file in ``eval/`` of a run's folder; return its path.

        Its name has the steps, the protocol, the number of games that were asked for, the policy
        and the seed, and ``-interrupted`` at the end if games are missing. Nothing is ever
        overwritten (`write_new`).
        """
        name = f"{self.steps}-{self.protocol.name}-{self.episodes}-{self.policy}-seed{self.seed}"
        path = folder / EVALUATIONS / f"{name}{'-interrupted' * self.interrupted}.json"
        return write_new(path, (json.dumps(self.as_dict(), indent=1) + "\n").encode())

    def _beside_a_human(self) -> list[str]:
        """Say the human-normalised score, if the game has one."""
        pair, share = baselines(self.settings.game, self.protocol.starts), self.human_normalised
        if pair is None or share is None:
            return []
        return [
            f"human-normalised score {share:.1f} % (random play, {pair[0]:g}, is 0 %; a human, "
            f"{pair[1]:g}, is 100 %)"
        ]

    def _emulator_line(self) -> str:
        """Return how the emulator was set, and how many games the frame limit cut off."""
        settings, cut = self.settings, sum(game.truncated for game in self.games)
        noops = f"up to {self.most_noops}" if self.most_noops else "no"
        actions = "full" if settings.full_actions else "minimal"
        if "FIRE" in self.action_names:
            at_reset = "yes" if self.fire_at_reset else "no"
            on_loss = "yes" if settings.fire_on_life_loss else "no"
            fire = f"FIRE at reset: {at_reset}, FIRE on life loss: {on_loss}"
        else:
            fire = "the action set has no FIRE"
        return (
            f"sticky actions {settings.sticky:g}, {noops} no-ops at the start, cut off at "
            f"{settings.max_frames:,} frames ({cut} games were), {actions} action set, frame skip "
            f"{settings.frame_skip}, {fire}"
        )
