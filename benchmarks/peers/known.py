"""The peers: where each one is installed, what is run, and which of our runs is like it."""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("own", "alike")
"""own: the peer as its documentation has it for Atari, beside our default recipe. alike: our run
with the peer's network, input, passes, minibatch, games and steps of a batch."""

NATURE = ("--torso", "nature", "--width", "512", "--size", "84", "--no-layer-norm")
"""The network that all these peers have in common, but for what a note says."""


@dataclass(frozen=True)
class Peer:
    """A system to compare with."""

    name: str
    venv: str  # folder of its environment, and name of the file with its versions
    script: str
    ours: tuple[str, ...]  # flags that make our run like it
    note: str  # how like it is, for the record
    words: tuple[str, ...] = ()  # flags of its script
    alike: tuple[str, ...] = ()  # the same, only where it is compared like for like

    def command(self, mode: str) -> tuple[str, ...]:
        """Return the script and its flags."""
        return (self.script, *self.words, *(self.alike if mode == "alike" else ()))

    def our_words(self, mode: str, game: str) -> tuple[str, ...]:
        """Return the preset and the flags of our run beside it."""
        return (f"ppo-{game}", *self.ours) if mode == "alike" else (game,)


def batch(games: int, length: int, passes: int, minibatch: int) -> tuple[str, ...]:
    """Return flags for two actors with ``games`` games each."""
    numbers = {"games": games, "length": length, "epochs": passes, "minibatch": minibatch}
    words: tuple[str, ...] = ("--actors", "2")
    for name, value in numbers.items():
        words += (f"--{name}", str(value))
    return words


PEERS = (
    Peer(
        "sb3-a2c",
        "sb3",
        "run_sb3.py",
        (*NATURE, *batch(8, 5, 1, 80)),
        "the same network (NatureCNN); 16 games, 80 steps a batch, one pass",
        ("--algorithm", "a2c"),
    ),
    Peer(
        "sb3-ppo",
        "sb3",
        "run_sb3.py",
        (*NATURE, *batch(4, 128, 4, 256)),
        "the same network (NatureCNN); 8 games, 1024 steps a batch in minibatches of 256, 4 passes",
        ("--algorithm", "ppo"),
    ),
    Peer(
        "rllib-appo",
        "rllib",
        "run_rllib.py",
        (*NATURE, *batch(10, 50, 2, 500)),
        "RLlib's own network (4 padded layers on 64x64) is not among our torsos and none of ours "
        "on 64x64 is as large, so both play 84x84 with Nature's convolutions; RLlib's two hidden "
        "layers of 256 are as many multiplications as our one of 512; 20 games, 1000 steps a batch "
        "in minibatches of 500, 2 passes (RLlib: what `passes` says, at most 2)",
        alike=("--network", "nature"),
    ),
    Peer(
        "sample-factory-appo",
        "sample-factory",
        "run_sample_factory.py",
        (*NATURE, *batch(8, 256, 4, 1024)),
        "the same network (convnet_atari); 16 games, 4096 steps a batch in minibatches of 1024, "
        "4 passes",
    ),
    Peer(
        "tianshou-ppo",
        "tianshou",
        "run_tianshou.py",
        (*NATURE, *batch(5, 100, 4, 256)),
        "the same network (DQNet with 512 units); 10 games, 1000 steps a batch in minibatches of "
        "256, 4 passes",
    ),
)
