"""From the keys that a person holds down to an action of a game."""

from __future__ import annotations

from collections.abc import Collection, Sequence

NOTHING = ("NOOP", "STAY")
"""Names of actions that do nothing. A game without one does its first action then."""


def action_of(pressed: Collection[str], names: Sequence[str]) -> int:
    """Return the action, an index into ``names``, that fits the keys best.

    Atari's actions are put together of directions and FIRE, such as UPRIGHTFIRE. In a game without
    up and down these keys are right and left, which move the paddle of Pong up and down. Where the
    actions are numbers, a digit chooses one.

    Args:
        pressed: of "up", "down", "left", "right", "fire" and the digits.
        names: of the game's actions.
    """
    for digit in sorted(pressed):
        if digit in names:
            return names.index(digit)
    held = {key.upper() for key in pressed}
    if not any(name.startswith(("UP", "DOWN")) for name in names):
        held |= {turned for key, turned in (("UP", "RIGHT"), ("DOWN", "LEFT")) if key in held}
    vertical = _one_of(held, "UP", "DOWN")
    horizontal = _one_of(held, "LEFT", "RIGHT")
    fire = "FIRE" if "FIRE" in held else ""
    for name in (
        vertical + horizontal + fire,
        horizontal + fire,
        vertical + fire,
        vertical + horizontal,
        horizontal,
        vertical,
        fire,
        *NOTHING,
    ):
        if name in names:
            return names.index(name)
    return 0


def _one_of(held: Collection[str], one: str, other: str) -> str:
    """Return the one of two opposite directions that is held; "" for none or both."""
    found = [key for key in (one, other) if key in held]
    return found[0] if len(found) == 1 else ""
