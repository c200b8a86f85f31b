"""The weights of a module: constants, the initial state, the scalars of a scalar model, and the tables of texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mlaot.binding.state import scalar_runs
from mlaot.lower.program import ExtensionModule
from mlaot.schedule.machine import LINE, whole_lines
from mlaot.tokenizers.rows import Rows
from mlaot.tokenizers.rows_packing import pack_rows
from mlaot.tokenizers.text_packing import pack_step
from mlaot.tokenizers.text_steps import TextStep
from mlaot.tokenizers.vectorizer import Vectorizer
from mlaot.tokenizers.vectorizer_packing import pack_vectorizers

Vectorizers = tuple[Vectorizer, ...]
Packed = Vectorizers | Rows | TextStep  # what lies in a block
# Weights up to this size are written as text, larger ones are embedded by the assembler.
TEXT_LIMIT = 64 * 1024
# Unless settings say so, larger ones go into a file of their own.
INSIDE_LIMIT = 64 << 20
DIGEST_BYTES = 64  # such a file begins with the SHA-256 of the rest, in hexadecimal


@dataclass(frozen=True)
class Weights:
    """The weights as a module stores them.

    ``file`` is the name of the weights file beside the module, or "" for embedded weights. ``text`` has the lines of a
    C array for small weights; the assembler reads larger ones from ``content``.
    """

    file: str
    digest: str
    size: int
    text: list[str]
    content: bytes


def placed_weights(module: ExtensionModule) -> Weights:
    """Return the weights of a module, embedded or in a file depending on its settings and their size."""
    parts, *_ = weights_parts(module)
    size = sum(map(len, parts))
    is_file = module.options.weights == "file" or (module.options.weights == "auto" and size > INSIDE_LIMIT)
    is_text = size <= TEXT_LIMIT and not is_file
    sha256 = digest(parts)
    content = b"".join((sha256.encode() if is_file else b"", *parts))
    file = f"{module.stem}.weights" if is_file else ""
    return Weights(file, sha256, size, weights_text(content) if is_text else [], content)


def weights_parts(module: ExtensionModule) -> tuple[list[bytes | bytearray], int, int, int, dict[Packed, int]]:
    """Return the consecutive parts of the weights, and the offset of each part but the first.

    The parts are the constants, the initial state, the scalar table, the tokenizer, the vectorizers and rows of text
    inputs, and the tables of steps.
    """
    table = b"".join(value.to_bytes(4, "little", signed=True) for run in scalar_runs(module) for value in run)
    initial = b"" if module.is_prepared else module.initial
    initial_at = whole_lines(len(module.constants))
    scalars_at = initial_at + whole_lines(len(initial))
    tokenizer_at = scalars_at + whole_lines(len(table))
    tokenizer = b"" if module.generation is None else module.generation.tokenizer
    parts: list[bytes | bytearray] = []
    for part in (module.constants, initial, table, tokenizer):
        parts += [part, bytes(-len(part) % LINE)]
    place, blocks_at = tokenizer_at + whole_lines(len(tokenizer)), dict[Packed, int]()
    packed: dict[Packed, bytes] = {vectorizers: pack_vectorizers(vectorizers) for vectorizers in vectorizers_of(module)}
    packed |= {rows: pack_rows(rows) for rows in rows_of(module)}
    packed |= {step: pack_step(step) for step in dict.fromkeys(map(alone, steps_of(module)))}
    for block, part in packed.items():
        parts += [part, bytes(-len(part) % LINE)]
        blocks_at[block] = place
        place += whole_lines(len(part))
    return parts if any(parts) else [bytes(LINE)], initial_at, scalars_at, tokenizer_at, blocks_at


def vectorizers_of(module: ExtensionModule) -> list[Vectorizers]:
    """Return the vectorizers of all inputs, each once."""
    ports = [port for entry in module.entries for port in entry.inputs]
    return list(dict.fromkeys(port.vectorizers for port in ports if port.vectorizers))


def rows_of(module: ExtensionModule) -> list[Rows]:
    """Return the tokenizations that make rows of tokens of all inputs, each once."""
    ports = [port for entry in module.entries for port in entry.inputs]
    return list(dict.fromkeys(port.rows for port in ports if port.rows))


def steps_of(module: ExtensionModule) -> list[TextStep]:
    """Return the text steps of all inputs and outputs."""
    ports = [port for entry in module.entries for port in (*entry.inputs, *entry.results)]
    return [step for port in ports for whole in (port.made, port.then) if whole for step in in_order(whole)]


def in_order(step: TextStep) -> list[TextStep]:
    """Return a step after the steps whose results it takes, each once."""
    before = [inner for of in step.of if isinstance(of, TextStep) for inner in in_order(of)]
    return list(dict.fromkeys([*before, step]))


def alone(step: TextStep) -> TextStep:
    """Return a step without the steps whose results it takes, so that steps with the same tables are equal."""
    return replace(step, of=())


def digest(parts: Iterable[bytes | bytearray]) -> str:
    """Return the SHA-256 of all parts together."""
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(part)
    return sha256.hexdigest()


def weights_text(weights: bytes) -> list[str]:
    """Format weights as lines of a C array of 64-bit words."""
    words = [f"0x{int.from_bytes(weights[i : i + 8], 'little'):x}u," for i in range(0, len(weights), 8)]
    return [" ".join(words[i : i + 5]) for i in range(0, len(words), 5)]
