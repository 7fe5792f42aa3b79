"""The frame stack: the newest frames, black before the start of a game."""

from __future__ import annotations

import numpy as np

from gelada.core.types import Bytes
from gelada.envs.frames import FrameStack


def frame(value: int) -> Bytes:
    return np.full((2, 2, 3), [[[value]], [[value + 100]]], dtype=np.uint8)


def test_a_stack_has_the_newest_frames_and_is_black_before_the_start() -> None:
    stack = FrameStack(2, 3, (2, 3))
    stack.reset(frame(1))
    stack.push(frame(2))
    stack.push(frame(3), over=np.array([False, True]))
    stack.push(frame(4), over=np.array([False, False]))
    assert stack.stacks.shape == (2, 3, 2, 3)
    assert stack.stacks.dtype == np.uint8
    assert stack.stacks[:, :, 0, 0].tolist() == [[2, 3, 4], [0, 103, 104]]
    stack.reset(frame(9))
    assert stack.stacks[:, :, 1, 2].tolist() == [[0, 0, 9], [0, 0, 109]]


def test_a_stack_of_one_frame_is_that_frame() -> None:
    stack = FrameStack(2, 1, (2, 3))
    stack.reset(frame(1))
    stack.push(frame(2), over=np.array([True, False]))
    np.testing.assert_array_equal(stack.stacks[:, 0], frame(2))
