"""Captions below the pictures of a grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gelada.core.types import Bytes, Ints

LETTERS = 0.56
"""Size of the letters, as a share of the caption's height."""

DOTS = "..."
"""Ends a text that is cut off."""


@lru_cache(maxsize=64)
def caption(left: str, right: str, width: int, height: int) -> Bytes:
    """Return a picture uint8[height, width, 3] with white letters on black.

    It has six greys, so that it adds few colours to a GIF.

    Args:
        left: text at the left; it is cut off where it would touch the other one.
        right: text at the right.
        width: of the picture.
        height: of the picture.
    """
    image = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(round(LETTERS * height))
    margin = height // 4
    room = width - 3 * margin - draw.textlength(right, font)
    if draw.textlength(left, font) > room:
        while left and draw.textlength(left + DOTS, font) > room:
            left = left[:-1]
        left += DOTS
    draw.text((margin, height / 2), left, fill=255, font=font, anchor="lm")
    draw.text((width - margin, height / 2), right, fill=255, font=font, anchor="rm")
    greys: Ints = (np.asarray(image).astype(np.int64) + 25) // 51 * 51
    return np.repeat(greys.astype(np.uint8)[:, :, None], 3, axis=2)
