"""Replay buffers compared: python benchmarks/stores.py [speed|ratio|summary]

``speed`` fills each buffer with 200,000 transitions of 84x84 and counts batches of 32 x 4 frames
per second on one core: Gelada's, Stable-Baselines3's, TorchRL's and cpprb's, uniform and
prioritized, in turn, five rounds. Each peer lives in an environment of its own, which is made at
the first start (with the same torch, which is by far the largest part). TorchRL's fills 11 GB.
``ratio`` counts the samples per insert of two actors, two learners and two stores over 100,000
inserts. Lines are appended to results/stores.jsonl; ``summary`` prints their medians.

A peer that cannot be installed, or fails, is reported by name and stage; it gets no figure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "stores.jsonl"
PEERS = HERE.parent / ".peers"
TORCH = "torch==2.13.0"

PACKAGES = {
    "sb3": ("stable-baselines3==2.9.2",),
    "torchrl": ("torchrl==0.14.1",),
    "cpprb": ("cpprb==11.0.0",),
}
"""What is installed for each peer. The binary part of TorchRL, which its priorities need, is built
for one torch only. Those of 0.12.0 to 0.14.1 do not load with this one, so that half fails."""

PAIRS = (
    ("gelada", "uniform"),
    ("sb3", "uniform"),
    ("torchrl", "uniform"),
    ("cpprb", "uniform"),
    ("gelada", "prioritized"),
    ("torchrl", "prioritized"),
    ("cpprb", "prioritized"),
)

Line = dict[str, Any]


class PeerFailed(Exception):
    """A stage of a peer failed; the message is the last line it printed."""


def run(command: list[str], timeout: float) -> str:
    """Return what a command prints.

    Raises:
        PeerFailed: if it fails or takes too long.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"no answer within {timeout:g} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise PeerFailed(f"exit code {done.returncode}: {(lines or ['no output'])[-1].strip()}")
    return done.stdout


def python_of(name: str) -> str:
    """Return the interpreter that has a store installed, making its environment if need be."""
    if name == "gelada":
        return sys.executable
    folder = PEERS / f"store-{name}"
    python = str(folder / "bin" / "python")
    ready = folder / "installed"
    if not ready.exists() or ready.read_text() != repr(PACKAGES[name]):
        venv.create(folder, with_pip=True, clear=True)
        constraints = PEERS / "constraints.txt"
        constraints.write_text(f"{TORCH}\n")
        pip = [python, "-m", "pip", "install", "--quiet", "-c", str(constraints)]
        run([*pip, *PACKAGES[name]], timeout=1800)
        ready.write_text(repr(PACKAGES[name]))
    return python


def versions(python: str) -> dict[str, str]:
    """Return what an environment has installed, of what matters here."""
    script = (
        "import json, importlib.metadata as m\n"
        "names = ('numpy', 'torch', 'stable-baselines3', 'torchrl', 'tensordict', 'cpprb')\n"
        "have = {d.name.lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "print(json.dumps({n: have[n] for n in names if n in have}))"
    )
    found: dict[str, str] = json.loads(run([python, "-c", script], timeout=60))
    return found


def measure(
    name: str, mode: str, transitions: int, seconds: float, python: Callable[[str], str]
) -> Line:
    """Return one line: figures, or the stage that failed."""
    stage = "install"
    try:
        interpreter = python(name)
        stage = "run"
        script = str(HERE / "store_contestants.py")
        command = [interpreter, script, name, mode, str(transitions), str(seconds)]
        printed = run(command, timeout=600 + 4 * seconds)
        figures = json.loads(printed.splitlines()[-1])
        return {**figures, "versions": versions(interpreter)}
    except (PeerFailed, OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        return {"failed": f"{name}: {stage}: {error}"}


def speed(args: argparse.Namespace) -> int:
    """Measure all in turn; return the exit code."""
    from gelada.runtime.system import describe_machine

    lines, machine = [], describe_machine()
    for number in range(args.rounds):
        for name, mode in PAIRS:
            if args.peer and name not in args.peer:
                continue
            line = {"what": "speed", "store": name, "mode": mode, "round": number}
            line |= measure(name, mode, args.transitions, args.seconds, python_of)
            lines.append(line)
            append(args.out, line | {"machine": machine})
            print(json.dumps(line), flush=True)
    print(summary(lines))
    return int(any("failed" in line for line in lines))


def ratio(args: argparse.Namespace) -> int:
    """Count samples per insert over 100,000 inserts, with threads that wait for one another."""
    import numpy as np

    from gelada.core.errors import Closed
    from gelada.core.types import Trajectory, Version
    from gelada.roles.replay.buffer import ReplayBuffer
    from gelada.roles.replay.frame_ring import BufferShape
    from gelada.roles.replay.joined import ShardedReplay
    from gelada.roles.replay.rate_limiter import SamplesPerInsert
    from gelada.roles.replay.sampling import Prioritized
    from gelada.runtime.system import describe_machine

    asked, games, length, batch, minimum, inserts = 8.0, 8, 20, 32, 5_000, 100_000
    steps, shape = games * length, (games, length)
    limiters = [
        SamplesPerInsert(asked, minimum // 2, asked * steps, steps, batch) for _ in range(2)
    ]
    stores = [
        ReplayBuffer(
            BufferShape(20_000, games, batch, 3, 4, (10, 5)), Prioritized(), limiter, 60.0, 1, index
        )
        for index, limiter in enumerate(limiters)
    ]

    def act(number: int) -> None:
        own = stores[number]
        frames = np.zeros((games, length + 4, 10, 5), np.uint8)
        ages = np.tile(np.arange(length + 1), (games, 1))
        no, floats = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
        for count in range(inserts // 2 // steps + 1):
            own.wait_for_room()
            own.add(
                Trajectory(
                    number, count, Version(0, 0), frames, ages + count * length,
                    np.zeros(shape, np.int64), floats, no, no, ~no, floats,
                    np.ones(games, np.bool_), np.zeros((games, 0), np.float32),
                )
            )  # fmt: skip

    def learn(number: int) -> None:
        client = ShardedReplay(stores, 1, 10 + number)
        try:
            while True:
                drawn = client.sample()
                client.update(drawn.keys, drawn.generations, drawn.weights)
        except Closed:
            return

    actors = [threading.Thread(target=act, args=(n,)) for n in range(2)]
    learners = [threading.Thread(target=learn, args=(n,)) for n in range(2)]
    begin = time.perf_counter()
    for thread in (*actors, *learners):
        thread.start()
    for thread in actors:
        thread.join()
    for store in stores:
        store.close()
    for thread in learners:
        thread.join()
    got = [limiter.sampled / (limiter.added - limiter.minimum) for limiter in limiters]
    line = {
        "what": "ratio", "asked": asked, "got": [round(each, 4) for each in got],
        "inserts": sum(limiter.added for limiter in limiters),
        "worst_error": round(max(abs(each / asked - 1.0) for each in got), 5),
        "seconds": round(time.perf_counter() - begin, 1),
    }  # fmt: skip
    append(args.out, line | {"machine": describe_machine()})
    print(json.dumps(line))
    return 0


def summary(lines: list[Line]) -> str:
    """Return a table of the medians of all rounds, and each relative to the fastest peer."""
    out = []
    for mode, figure in (
        ("uniform", "batches_per_s"),
        ("prioritized", "batches_per_s"),
        ("prioritized", "with_update_per_s"),
    ):
        mine = [li for li in lines if li["what"] == "speed" and li["mode"] == mode]
        names = list(dict.fromkeys(li["store"] for li in mine))
        rates = {
            name: [li[figure] for li in mine if li["store"] == name and figure in li]
            for name in names
        }
        peers = [median(r) for name, r in rates.items() if r and name != "gelada"]
        for name in names:
            failures = [li["failed"] for li in mine if li["store"] == name and "failed" in li]
            if rates[name]:
                middle = median(rates[name])
                against = f"{middle / max(peers):6.2f}" if peers else "     -"
                out.append(f"{mode:12} {figure:18} {name:8} {middle:9,.0f} {against}")
            if failures:
                out.append(f"{mode:12} {figure:18} failed: {failures[-1]}")
    return "\n".join(out)


def append(path: Path, line: Line) -> None:
    """Add a line to a file of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[Line]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="speed", choices=("speed", "ratio", "summary"))
    parser.add_argument("--peer", action="append", choices=("gelada", *PACKAGES))
    parser.add_argument("--transitions", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each figure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.what == "summary":
        print(summary(read(args.out)))
        return 0
    return speed(args) if args.what == "speed" else ratio(args)


if __name__ == "__main__":
    sys.exit(main())
