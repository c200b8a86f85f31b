"""Steps on the strings and images of a call, before a model computes and after it.

This slow implementation is the reference for C. A step takes columns, which are arrays of strings or of numbers, and
makes one column. A model gets the strings of a step as indices, like those of callers.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlaot.tokenizers.automaton import Automaton

Row = tuple[
    Automaton, tuple[int, int, int]
]  # and where a search begins in it: in a text, behind a word, behind another
START, STOP = b"\2", b"\3"  # what stands around the tokens of a text
WORDS = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
INTEGERS = {
    f"{kind}{bits}": (-(1 << bits - 1) if kind == "i" else 0, (1 << (bits - 1 if kind == "i" else bits)) - 1)
    for kind in "iu"
    for bits in (8, 16, 32, 64)
}
FLOATS = {"f16": "e", "f32": "f", "f64": "d"}
# Of an image, how Pillow converts it and in which order it gives the bytes of a pixel.
PIXELS = {"RGB": ("RGB", "RGB"), "BGR": ("RGB", "BGR"), "Grayscale": ("L", "L")}
IMAGES = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")  # what is decoded, by Pillow's names
UNLIMITED, OPEN = (1 << 63) - 1, -1  # cuts, and a width that is the longest row's


@dataclass(frozen=True)
class TextStep:
    """A step that makes a column.

    ``of`` lists its operands: inputs by name, columns of an output by index, or other steps.

    ``kind`` is one of these, with the given numbers and texts:

    "constant": ``texts``, with their shape in ``numbers``.

    "lower", "upper", "join" (one column after another), "concat", "match", "counts" (of pieces).

    "without": the first column without elements that have one of ``texts`` in the second column; the number of axes.

    "pieces": the cuts at a text; the largest number of cuts, and the length of a row.

    "tokens": whether tokens are marked, their least number of characters, whether patterns separate them, and the
    length of a row, which ``texts`` fill.

    "number": numbers of ``dtype``. "text": the texts of numbers of ``dtype``. "image": the bytes of a file, one of
    ``PIXELS``.

    "values": the values of a dict that callers pass, which no step makes.
    """

    kind: str
    of: tuple[TextStep | str | int, ...]
    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    patterns: tuple[Row, ...] = field(default=(), repr=False)
    dtype: str = ""

    @property
    def size(self) -> int:
        """The number of steps, including those among its operands."""
        return 1 + sum(of.size for of in self.of if isinstance(of, TextStep))

    @property
    def columns(self) -> int:
        """The number of columns of an output that it takes."""
        taken = [of.columns if isinstance(of, TextStep) else of + 1 for of in self.of if not isinstance(of, str)]
        return max(taken, default=0)


@dataclass(frozen=True)
class Column:
    """An array of strings, as bytes or None, or of numbers."""

    shape: tuple[int, ...]
    values: Sequence[Any]


def made(step: TextStep, given: Callable[[str | int, bool], Column], known: dict[TextStep, Column]) -> Column:
    """Return the column of a step; ``given`` has those of inputs and outputs, and ``known`` those of earlier steps."""
    if step not in known:
        numbers = step.kind in ("text", "image")
        columns = [made(of, given, known) if isinstance(of, TextStep) else given(of, numbers) for of in step.of]
        if not numbers and any(None in column.values for column in columns):
            raise ValueError("expected strings, got one that is missing")
        known[step] = MAKERS[step.kind](step, *columns)
    return known[step]


def _each(column: Column, make: Callable[[Any], Any]) -> Column:
    found = {value: make(value) for value in dict.fromkeys(column.values)}
    return Column(column.shape, [found[value] for value in column.values])


def _constant(step: TextStep) -> Column:
    return Column(step.numbers, [text.encode(errors="surrogatepass") for text in step.texts])


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError("expected strings in UTF-8, got other bytes") from None


def simple_lower(character: str) -> str:
    """Return the lower case of a character if that is a single character, or the character itself."""
    return "i" if character == "\u0130" else _single(character.lower(), character)


def simple_upper(character: str) -> str:
    """Return the upper case of a character if that is a single character, or the character itself."""
    return _single(character.upper(), _single(character.title(), character))


def _single(changed: str, other: str) -> str:
    return changed if len(changed) == 1 else other


def _lower(step: TextStep, column: Column) -> Column:
    return _each(column, lambda value: "".join(map(simple_lower, _decoded(value))).encode())


def _upper(step: TextStep, column: Column) -> Column:
    return _each(column, lambda value: "".join(map(simple_upper, _decoded(value))).encode())


def _without(step: TextStep, column: Column, compared: Column) -> Column:
    """Return the remaining elements, or one empty string if none remain."""
    dropped = {text.encode() for text in step.texts}
    pairs = zip(column.values, compared.values, strict=True)
    kept = [value for value, other in pairs if other not in dropped] or [b""]
    return Column((1,) * (step.numbers[0] - 1) + (len(kept),), kept)


def _join(step: TextStep, one: Column, other: Column) -> Column:
    return Column((len(one.values) + len(other.values),), [*one.values, *other.values])


def _concat(step: TextStep, one: Column, other: Column) -> Column:
    rank = max(len(one.shape), len(other.shape))
    shapes = [(1,) * (rank - len(column.shape)) + column.shape for column in (one, other)]
    if not all(a == b or 1 in (a, b) for a, b in zip(*shapes, strict=True)):
        raise ValueError("expected arrays of strings that go together")
    shape = tuple(b if a == 1 else a for a, b in zip(*shapes, strict=True))
    values = []
    for place in range(math.prod(shape)):
        at, sizes = [0, 0], [1, 1]
        for axis in reversed(range(rank)):
            place, index = divmod(place, shape[axis])
            for k, own in enumerate(shapes):
                at[k] += (index if own[axis] > 1 else 0) * sizes[k]
                sizes[k] *= own[axis]
        values.append(one.values[at[0]] + other.values[at[1]])
    return Column(shape, values)


def _cut(step: TextStep, value: bytes) -> list[bytes]:
    """Return the pieces of a string after at most ``most`` cuts.

    Without a delimiter, spaces around pieces are dropped.
    """
    delimiter, most = step.texts[0].encode(), step.numbers[0]
    if not value:
        return []
    if delimiter:
        return value.split(delimiter, most if most < UNLIMITED else -1)
    pieces, at = list[bytes](), len(value) - len(value.lstrip(b" "))
    while at < len(value):
        end = value.find(b" ", at) if len(pieces) < most else -1
        pieces.append(value[at : end if end >= 0 else None])
        at = end if end >= 0 else len(value)
        at += len(value[at:]) - len(value[at:].lstrip(b" "))
    return [*pieces[:-1], pieces[-1].rstrip(b" ")] if pieces else []


def _pieces(step: TextStep, column: Column) -> Column:
    return _rows(column, [_cut(step, value) for value in column.values], b"", step.numbers[1])


def _rows(column: Column, rows: Sequence[Sequence[bytes]], pad: bytes, width: int) -> Column:
    """Return rows as an array of a given width, or of the width of the longest row."""
    longest = max(map(len, rows), default=0)
    if longest > width != OPEN:
        raise ValueError(f"expected strings of at most {width} pieces, got one of {longest}")
    width = longest if width == OPEN else width
    return Column((*column.shape, width), [value for row in rows for value in (*row, *[pad] * (width - len(row)))])


def _counts(step: TextStep, column: Column) -> Column:
    return _each(column, lambda value: len(_cut(step, value)))


def _match(step: TextStep, column: Column) -> Column:
    ((automaton, starts),) = step.patterns

    def matches(value: bytes) -> bool:
        row = starts[0]
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return False
        for character in text:
            row = automaton.table[row + automaton.class_of(ord(character))] >> 1
            if row == 0:
                return False
        return automaton.table[row + automaton.width - 1] & 1 == 1

    return _each(column, matches)


def _found(pattern: Row, text: str, at: int, vain: dict[int, int]) -> int:
    """Return the end of the longest match at a place, or the place itself."""
    automaton, starts = pattern
    before = text[at - 1 : at]
    row = starts[0 if not before else 1 if before.isascii() and ord(before) in WORDS else 2]
    return automaton.end_of(text, at, vain, row)


def _tokens(step: TextStep, column: Column) -> Column:
    rows = list[list[bytes]]()
    for value in column.values:
        text = _decoded(value)
        found = _characters(text) if not step.patterns else _tokens_of(step, text)
        rows.append([token.encode() for token in found])
    if step.numbers[0] and any(rows):
        rows = [[START, *row, STOP] for row in rows]
    return _rows(column, rows, step.texts[0].encode(), step.numbers[3])


def _characters(text: str) -> list[str]:
    return [*text]


def _tokens_of(step: TextStep, text: str) -> list[str]:
    _, least, separates, _ = step.numbers
    if not separates:
        tokens, at, vain = list[str](), 0, dict[int, int]()
        while at < len(text):
            end = _found(step.patterns[0], text, at, vain)
            is_token = end > at and end - at >= least
            tokens += [text[at:end]] if is_token else []
            at = end if is_token else at + 1
        return tokens
    parts = [text]
    for pattern in step.patterns:
        parts = [piece for part in parts for piece in _between(pattern, part) if len(piece) >= least]
    return parts


def _between(pattern: Row, text: str) -> list[str]:
    """Return the parts between the matches of a pattern."""
    pieces, begin, at, vain = list[str](), 0, 0, dict[int, int]()
    while at < len(text):
        end = _found(pattern, text, at, vain)
        if end > at:
            pieces.append(text[begin:at])
            begin = end
        at = max(end, at + 1)
    return [*pieces, text[begin:]]


def _number(step: TextStep, column: Column) -> Column:
    dtype = step.dtype

    def number(value: bytes) -> Any:
        text = value.strip(b"\t\n\v\f\r ")
        if dtype in FLOATS:
            return _float(text, dtype)
        digits, _, fraction = text.lstrip(b"+-").partition(b".")
        is_signed = len(text) - len(text.lstrip(b"+-")) <= 1
        if not (is_signed and digits.isdigit() and (fraction or b"0").isdigit()):
            raise ValueError("expected integers as strings, got another")
        digits = digits.lstrip(b"0") or b"0"
        found = int(digits) * (-1 if text[:1] == b"-" else 1) if len(digits) < 40 else 1 << 64
        if dtype == "bool":
            return found != 0
        low, high = INTEGERS[dtype]
        if not low <= found <= high:
            raise ValueError(f"expected integers from {low} to {high} as strings, got another")
        return found

    return _each(column, number)


def _float(text: bytes, dtype: str) -> float:
    """Return a number rounded to its dtype."""
    try:
        if b"_" in text or text != text.strip() or not text.isascii():
            raise ValueError
        number = float(text)
        return float(struct.unpack(FLOATS[dtype], struct.pack(FLOATS[dtype], number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)
    except ValueError:
        raise ValueError("expected numbers as strings, got another") from None


def _text(step: TextStep, column: Column) -> Column:
    """Return numbers as strings, with eight digits if they are no integers."""

    def text(value: Any) -> bytes:
        if step.dtype not in FLOATS:
            return b"%d" % value
        if value != value:
            return b"NaN"
        return b"%.8g" % value if math.isfinite(value) else b"INF" if value > 0 else b"-INF"

    return Column(column.shape, [text(value) for value in column.values])


def _image(step: TextStep, column: Column) -> Column:
    """Return the pixels of a file, decoded by Pillow, which is imported for the first file."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("an image is decoded by Pillow, which cannot be imported: pip install pillow") from error
    mode, order = [*PIXELS.values()][step.numbers[0]]
    try:
        image = Image.open(io.BytesIO(bytes(column.values)), formats=IMAGES).convert(mode)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"expected an image; Pillow says: {error}") from error
    return Column((image.height, image.width, len(mode)), [*image.tobytes("raw", order)])


MAKERS: dict[str, Callable[..., Column]] = {
    **{"constant": _constant, "lower": _lower, "upper": _upper, "without": _without, "concat": _concat, "join": _join},
    **{"pieces": _pieces, "counts": _counts, "match": _match, "tokens": _tokens, "number": _number, "text": _text},
    "image": _image,
}
