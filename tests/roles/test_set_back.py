"""A wall clock that is set back by weeks while a run writes TensorBoard events.

TensorBoard's thread then waits for its next flush with a timeout of more than 2**31 milliseconds,
and dies of that. Whoever adds events to its queue, which holds ten, waits for ever.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from colobus.core.files import read_lines
from helpers.launching import complete, start, wait_until

SCRIPT = '''
import sys
import time
from pathlib import Path

from colobus.cli.main import main

RUN, real, seen, back = Path(sys.argv[1]), time.time, [], []


def set_back():
    """Return the time, 35 days earlier once TensorBoard has chosen its next flush.

    It does so when its file is made; on a busy machine checkpoints may come before that.
    """
    if not back and list(RUN.glob("checkpoints/*.json")) and list(RUN.rglob("events.out*")):
        seen.append(real())
        if seen[-1] - seen[0] > 2.0:
            back.append(35 * 86_400.0)
    return real() - sum(back)


time.time = set_back
sys.argv = ["colobus", *sys.argv[2:]]
main()
'''


def versions(run: Path) -> list[int]:
    return [line["version"] for line in read_lines(run / "metrics.jsonl")]


@pytest.mark.processes
def test_a_clock_that_is_set_back_costs_events_and_nothing_else(tmp_path: Path) -> None:
    run, script, lines = tmp_path / "run", tmp_path / "train.py", list[str]()
    script.write_text(SCRIPT)
    words = ("train", "catch", "--out", run, "--no-finish", "--minutes", 5)
    process = start(run, *words, "--checkpoint-seconds", 0.2, script=script)
    assert process.stdout is not None
    reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
    reader.start()
    said = "no more TensorBoard events: OverflowError: "
    wait_until(lambda: any(line.startswith(said) for line in lines), process)
    before = complete(run)[-1]["version"]
    wait_until(lambda: versions(run)[-1] > before, process)
    wait_until(lambda: complete(run)[-1]["version"] > before, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    reader.join(60)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    assert sum(line.startswith(said) for line in lines) == 1
    assert sum("stopped by Ctrl-C" in line and "all saved" in line for line in lines) == 1
    seconds = [row["seconds"] for row in read_lines(run / "metrics.jsonl")]
    assert seconds == sorted(seconds)
    assert 0 < seconds[-1] < 3600  # of training, whatever the wall clock says
    assert sorted(path.name for path in run.iterdir() if path.name.startswith((".", "lock"))) == []
