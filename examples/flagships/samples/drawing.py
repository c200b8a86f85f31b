"""Texts as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def page(lines: Sequence[tuple[str, int]], path: Path, *, width: int = 640, turned: bool = False) -> None:
    """Write a picture of some lines, each with the size of its letters; ``turned`` upside down."""
    from PIL import Image, ImageDraw, ImageFont

    height = sum(size * 2 for _, size in lines) + 20
    picture = Image.new("RGB", (width, height), "white")
    draw, y = ImageDraw.Draw(picture), 10
    for text, size in lines:
        draw.text((20, y), text, fill=(20, 20, 40), font=ImageFont.load_default(size))
        y += size * 2
    (picture.rotate(180) if turned else picture).save(path)


def puzzle(text: str, path: Path, seed: int) -> None:
    """Write a picture of a few letters, each a little turned, behind lines and dots."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (40 * len(text) + 20, 64), (240, 240, 235))
    font: Any = ImageFont.load_default(44)
    for i, letter in enumerate(text):
        tile = Image.new("RGBA", (50, 60))
        colour = tuple(int(c) for c in rng.integers(0, 120, 3))
        ImageDraw.Draw(tile).text((8, 2), letter, fill=colour, font=font)
        tile = tile.rotate(rng.uniform(-15, 15), Image.Resampling.BILINEAR)
        picture.paste(tile, (5 + 40 * i, 0), tile)
    draw = ImageDraw.Draw(picture)
    for _ in range(3):
        ends = [int(end) for end in rng.integers(0, [picture.width, 64, picture.width, 64])]
        draw.line(ends, fill=(130, 140, 150))
    for _ in range(60):
        draw.point([int(c) for c in rng.integers(0, [picture.width, 64])], fill=(90, 90, 90))
    picture.save(path)
