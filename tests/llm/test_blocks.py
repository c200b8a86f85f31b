"""Numbers in blocks are those that the package gguf makes of them (``make_gguf.py``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlaot.llm import blocks

DATA = dict(np.load(Path(__file__).parents[1] / "reference" / "gguf.npz"))


@pytest.mark.parametrize("kind", blocks.TYPES.values(), ids=lambda kind: kind.name)
def test_numbers_are_those_of_gguf(kind: blocks.Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, in one go and in two."""
    found, wanted = DATA[f"blocks/{kind.name}"].view(kind.block), DATA[f"numbers/{kind.name}"]
    np.testing.assert_array_equal(blocks.decode(found, kind), wanted, strict=True)
    monkeypatch.setattr(blocks, "STEP", 4 * kind.numbers)
    np.testing.assert_array_equal(blocks.decode(found, kind), wanted, strict=True)


def test_all_types_were_compared() -> None:
    assert {f"blocks/{kind.name}" for kind in blocks.TYPES.values()} == {
        key for key in DATA if key.startswith("blocks")
    }


def test_any_scale_is_a_number() -> None:
    """Infinity and what is none do not warn."""
    kind = blocks.TYPES[14]
    assert np.isnan(blocks.decode(np.full((1, kind.block.itemsize), 255, np.uint8).view(kind.block), kind)).all()
