"""A run that is stopped while its processes are being started: the first of them learn already."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import catch
from gelada.core.checkpoint import newest_checkpoint
from gelada.runtime.api import nothing
from gelada.runtime.threads import Threads
from gelada.training import runtimes as module
from gelada.training.callbacks import StopTraining
from gelada.training.run import train

STEPS = 100_000_000


class SlowStart(Threads):
    """Takes part of its roles for started, the learner among them, when the caller ends it."""

    ends: BaseException
    learned = 0

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start the roles; before it returns, a version has been learned and the caller stops."""
        super().start(pause)
        while not self.roles["tracker"].status().version:
            time.sleep(0.01)
        SlowStart.learned = self.roles["tracker"].status().version
        raise self.ends


class NoStart(Threads):
    """The caller ends it before any role has begun."""

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start nothing."""
        raise KeyboardInterrupt

    def has_begun(self, role: str) -> bool:
        """Return False, as a process does that has not built its roles."""
        return False


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), StopTraining("enough")])
def test_what_was_learned_before_all_had_started_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    monkeypatch.setattr(SlowStart, "ends", ends, raising=False)
    monkeypatch.setattr(module, "Threads", SlowStart)
    result = train(catch(STEPS), tmp_path / "run", log=lambda _: None)
    assert result.saved
    assert (result.interrupted, result.stopped) in [(True, ""), (False, "enough")]
    _, checkpoint, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint.version.number >= SlowStart.learned > 0
    monkeypatch.setattr(module, "Threads", Threads)
    goes_on = catch(checkpoint.steps + 1_000)
    after = train(goes_on, tmp_path / "run", resume=True, log=lambda _: None)
    assert after.steps > checkpoint.steps


def test_a_run_that_learned_nothing_leaves_no_folder_that_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Threads", NoStart)
    result = train(catch(STEPS), tmp_path / "run", log=lambda _: None)
    assert result.interrupted
    assert not (tmp_path / "run" / "config.json").exists()
