"""What the names of games mean."""

from __future__ import annotations

import pytest

from gelada.core.errors import GeladaError
from gelada.envs.make import known_games, parse_game
from gelada.experiment.presets import preset


@pytest.mark.parametrize(
    ("name", "game", "sticky", "skip"),
    [
        ("pong", "pong", None, None),
        ("Pong", "pong", None, None),
        ("catch", "catch", None, None),
        ("space_invaders", "space_invaders", None, None),
        ("SpaceInvaders", "space_invaders", None, None),
        ("spaceinvaders", "space_invaders", None, None),
        ("Breakout-v0", "breakout", 0.25, "2 to 4"),
        ("Breakout-v4", "breakout", 0.0, "2 to 4"),
        ("BreakoutDeterministic-v0", "breakout", 0.25, None),
        ("BreakoutDeterministic-v4", "breakout", 0.0, None),
        ("PongNoFrameskip-v0", "pong", 0.25, "1"),
        ("PongNoFrameskip-v4", "pong", 0.0, "1"),
        ("MsPacmanNoFrameskip-v4", "ms_pacman", 0.0, "1"),
        ("ALE/Pong-v5", "pong", 0.25, None),
        ("ALE/SpaceInvaders-v5", "space_invaders", 0.25, None),
    ],
)
def test_names(name: str, game: str, sticky: float | None, skip: str | None) -> None:
    """``skip``: the frame skip that the name implies, if it is not the one always played."""
    parsed = parse_game(name)
    assert (parsed.game, parsed.sticky) == (game, sticky)
    assert (f"sticky actions {sticky:g}" in parsed.note) if sticky is not None else not parsed.note
    assert ("frame skip" in parsed.note) == (skip is not None)
    assert skip is None or f"frame skip {skip} (" in parsed.note
    assert "\n" not in parsed.note


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("pogn", "pong"),
        ("brekout", "breakout"),
        ("BrekoutNoFrameskip-v4", "breakout"),
        ("ALE/SpaceInvader-v5", "space_invaders"),
        ("Pong-v7", "pong"),
        ("", "adventure"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(GeladaError) as error:
        parse_game(name)
    message = str(error.value)
    assert message.startswith(f"unknown game {name!r}: ")
    assert near in message.split(": ", 1)[1]
    assert "\n" not in message


def test_known_games_are_the_emulators_and_catch() -> None:
    games = known_games()
    assert games[0] == "catch"
    assert len(games) == len(set(games)) > 60
    assert {"pong", "breakout", "montezuma_revenge", "video_pinball"} < set(games)
    assert all(parse_game(game).game == game for game in games)


def test_the_published_preset_of_dba3c_plays_as_gyms_v0() -> None:
    """Sticky actions with 0.25, and no FIRE but the agent's own."""
    games = preset("dba3c-breakout-paper")[0].games
    assert games.sticky == parse_game("Breakout-v0").sticky == 0.25
    assert not games.fire_at_reset
    assert not games.fire_on_life_loss
