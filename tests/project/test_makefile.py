"""`make test-gpu` fails where no test of a GPU ran."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_its_tests_fail_if_they_are_asked_for() -> None:
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-x", "tests/runtime/test_gpu.py"]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "GELADA_TEST_GPU": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no CUDA device" in done.stdout
    recipe = (ROOT / "Makefile").read_text().partition("test-gpu: setup\n\t")[2].splitlines()[0]
    assert recipe == "GELADA_TEST_GPU=1 $(BIN)/python -m pytest -m gpu"
