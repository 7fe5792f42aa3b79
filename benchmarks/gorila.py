"""What is measured for Gorila, DQN, A3C and PQN: times to Pong, and six games with one setting."""

from __future__ import annotations

from games import Games
from ledger import Cell
from timed import Timed

TIMED = {
    "--checkpoint-seconds": "10",
    "--keep-checkpoints": "0",
    "--until-score": "19.5",  # over training games: the checkpoint looked for is earlier
    "--steps": "3000000",
    "--minutes": "8",
}
LADDER = TIMED | {"--minutes": "6"}
"""The training games of a ladder of epsilons never have a mean of 19.5: some explore to the end."""

PLAYS_WELL = 15.0
"""Mean score of full games that `gorila-pong` must reach; 18 is its goal."""

GORILA = Timed("gorila-pong", "gorila", TIMED)
GORILA_15 = Timed("gorila-pong", "gorila", TIMED, solved=PLAYS_WELL)
APEX = Timed("apex-pong", "apex", LADDER)
DQN = Timed("dqn-pong", "dqn", TIMED)
A3C = Timed("a3c-pong", "a3c", TIMED)
PQN = Timed("pqn-pong", "pqn", TIMED)

MEASURED = ((GORILA, (1, 2)), (APEX, (1, 2)), (DQN, (1, 2)), (A3C, (1, 2)), (PQN, (1, 2)))
"""Presets and their seeds."""

SIX = Games("gorila-games", "gorila-breakout")


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    trained = [timed.train_cell(seed) for timed, seeds in MEASURED for seed in seeds]
    found = [timed.time_cell(seed) for timed, seeds in MEASURED for seed in seeds]
    fifteen = [GORILA_15.time_cell(seed) for seed in MEASURED[0][1]]
    return [*trained, *fifteen, *found, *SIX.cells()]
