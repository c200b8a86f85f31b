"""Letters of puzzles, by two networks, and where something is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEXTS = ("xk7m", "Rw2p", "9hfq", "tUn4", "b8zc", "jd3V")


def make(folder: Path) -> None:
    """Draw the puzzles."""
    from drawing import page, puzzle

    for i, text in enumerate(TEXTS):
        puzzle(text, folder / f"{i}.png", seed=i)
    page([("A  B", 60), ("  C", 60), ("D   E", 60)], folder / "page.png", width=400)


def steps(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield what is read and found."""
    import ddddocr

    pictures = [(folder / f"{i}.png").read_bytes() for i in range(len(TEXTS))]
    usual = ddddocr.DdddOcr(show_ad=False)
    yield "first", usual.classification(pictures[0])
    yield "texts", [usual.classification(picture) for picture in pictures]
    beta = ddddocr.DdddOcr(show_ad=False, beta=True)
    yield "texts of the beta", [beta.classification(picture) for picture in pictures]
    detector = ddddocr.DdddOcr(show_ad=False, ocr=False, det=True)
    yield "boxes", detector.detection((folder / "page.png").read_bytes())
