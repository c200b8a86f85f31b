"""The post-processor, the truncation and the padding of a ``tokenizer.json``: the frame of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlaot.tokenizers.frames import FIRST, PART, SECOND, TYPE, Frame
from mlaot.tokenizers.json_steps import Part, flat, refuse

TEXTS = {"A": FIRST, "B": SECOND}
MAX_FRAME, MAX_TYPE, MAX_ROW = 64, 1 << 16, 1 << 20
SUPPORTED = "one of BertProcessing, RobertaProcessing, or TemplateProcessing with its special tokens"


def read_frame(path: Path, content: Part, count: int) -> Frame:
    """Return the frame of a file's texts, for ``count`` different tokens."""
    single, pair = _frames(path, content.get("post_processor"), count)
    padding, truncation = content.get("padding") or {}, content.get("truncation") or {}
    if not isinstance(padding, dict) or not isinstance(truncation, dict):
        raise refuse(path, "padding and truncation", (padding, truncation), "objects")
    most, direction = truncation.get("max_length", 0), truncation.get("direction", "Right")
    if type(most) is not int or most < 0 or direction not in ("Left", "Right"):
        raise refuse(path, "truncation", truncation, "a max_length and a direction, Left or Right")
    token = padding.get("pad_id", 0)
    if type(token) is not int or not 0 <= token < count:
        raise refuse(path, "padding.pad_id", token, "a token of the vocabulary")
    return Frame(single, pair, min(most, MAX_ROW), direction == "Left", token)


def around(single: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens before a text, and those after it."""
    tokens = [number & PART for number in single]
    text = tokens.index(FIRST)
    return tuple(tokens[:text]), tuple(tokens[text + 1 :])


def _frames(path: Path, part: Any, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the frame of a text, and the frame of two texts, which is empty if the file has none."""
    single: tuple[int, ...] = (FIRST,)
    pair: tuple[int, ...] = (FIRST, SECOND | 1 << TYPE)
    parts = [one for one in flat(path, part, "processors") if one.get("type") != "ByteLevel"]
    for one in parts:
        try:
            if len(parts) > 1:
                raise KeyError
            if one.get("type") in ("BertProcessing", "RobertaProcessing"):
                begin, end = one["cls"][1], one["sep"][1]
                single = (begin, FIRST, end)
                pair = (*single, SECOND | 1 << TYPE, end | 1 << TYPE)
                if one["type"] == "RobertaProcessing":
                    pair = (*single, end, SECOND, end)
            elif one.get("type") == "TemplateProcessing":
                single, pair = _template(one, "single"), _template(one, "pair") if "pair" in one else ()
                if [number & PART for number in single].count(FIRST) != 1 or SECOND in map(PART.__and__, single):
                    raise KeyError
            else:
                raise KeyError
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            raise refuse(path, "post_processor", one, SUPPORTED) from None
    found = [number & PART for number in (*single, *pair) if number & PART not in TEXTS.values()]
    if not all(0 <= i < count for i in found):
        raise refuse(path, "post_processor", found, "tokens of the vocabulary")
    return single, pair if {*TEXTS.values()} <= {number & PART for number in pair} else ()


def _template(part: Part, name: str) -> tuple[int, ...]:
    """Return the numbers of a template."""
    found = list[int]()
    for row in part[name]:
        ((kind, said),) = row.items()
        type_, name = said.get("type_id", 0), said["id"]
        ids = [TEXTS[name]] if kind == "Sequence" else part["special_tokens"][name]["ids"]
        if type(type_) is not int or not 0 <= type_ < MAX_TYPE or not all(type(i) is int for i in ids):
            raise ValueError
        if kind != "Sequence" and not all(0 <= i < SECOND for i in ids):
            raise ValueError
        found += [type_ << TYPE | i for i in ids]
    if len(found) > MAX_FRAME:
        raise ValueError
    return tuple(found)
