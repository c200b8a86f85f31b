"""Texts on pages, one of which is upside down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECEIPT = (
    ("CORNER BAKERY", 34),
    ("2 rye breads 9.80", 22),
    ("1 apple cake 14.50", 22),
    ("Total 24.30 EUR", 26),
    ("Thank you, come again!", 18),
)
LETTER = (
    ("Dear Sir or Madam,", 24),
    ("your parcel 4711-0815 is waiting at counter 3.", 20),
    ("Open from 09:00 to 18:30, closed on Sundays.", 20),
    ("Kind regards, the post office", 22),
)


def make(folder: Path) -> None:
    """Draw the pages."""
    from drawing import page

    page(RECEIPT, folder / "receipt.png", width=420)
    page(LETTER, folder / "letter.png")
    page(RECEIPT, folder / "turned.png", width=420, turned=True)


def steps(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield what is read."""
    from rapidocr import RapidOCR

    engine = RapidOCR(params={"Global.log_level": "error"})
    for name in ("receipt", "letter", "turned"):
        found = engine(str(folder / f"{name}.png"))
        yield (
            name,
            {
                "texts": list(found.txts or ()),
                "scores": list(map(float, found.scores or ())),
                "boxes": [] if found.boxes is None else found.boxes.round().tolist(),
            },
        )
