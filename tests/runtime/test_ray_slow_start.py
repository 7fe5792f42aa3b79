"""Processes that take long to start, as they do beside other work, are waited for and told of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.ray_runs import DRIVER, train

pytestmark = pytest.mark.cluster

IMPATIENT = """
import gelada.runtime.ray

prepare = gelada.runtime.ray.prepare


def prepare_impatiently(address):
    found = prepare(address)
    import gelada.runtime.ray.runtime

    gelada.runtime.ray.runtime.START_SECONDS = 0.01
    gelada.runtime.ray.runtime.LONGEST_START_SECONDS = LONGEST
    return found


gelada.runtime.ray.prepare = prepare_impatiently
"""


@pytest.mark.parametrize(("longest", "ends"), [(300.0, 0), (0.02, 3)])
def test_a_slow_start_is_told_of_and_waited_for(tmp_path: Path, longest: float, ends: int) -> None:
    impatient = IMPATIENT.replace("= LONGEST", f"= {longest}")
    run = train(tmp_path, "catch", "--steps", 3_000, code=DRIVER + impatient)
    try:
        code, _, _ = run.end()
        log = run.log
    finally:
        run.kill()
    assert code == ends, log
    told = re.findall(r"^(gelada: )?\S.* did not start within (\d+) s: each asks for ", log, re.M)
    assert told, log
    assert [bool(prefix) for prefix, _ in told].count(True) == (ends == 3)
    assert run.path.exists() == (ends == 0)
