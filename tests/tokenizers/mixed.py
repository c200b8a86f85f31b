"""Texts of all kinds in one line: words, code, many scripts, emoji, spaces, control characters, special tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

SCRIPTS = (
    *((0x41, 0x5B), (0x61, 0x7B), (0x61, 0x7B), (0x61, 0x7B), (0xC0, 0x180), (0x300, 0x370), (0x370, 0x400)),
    *((0x400, 0x500), (0x590, 0x600), (0x600, 0x700), (0x660, 0x66A), (0x900, 0x980), (0xE00, 0xE60), (0x1100, 0x1200)),
    *((0x1E00, 0x2000), (0x2000, 0x2070), (0x2100, 0x2200), (0x2150, 0x2190), (0x2580, 0x2590), (0x3040, 0x3100)),
    *((0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xFB00, 0xFB50), (0xFF00, 0xFFF0), (0x10400, 0x10450), (0x1D400, 0x1D800)),
    *((0x1E900, 0x1E960), (0x1F300, 0x1F700), (0x20000, 0x20100)),
)
WORDS = (
    *(
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "def",
        "return",
        "self",
        "import",
        "class",
        "while",
        "print",
        "None",
        "True",
    ),
    *("don't", "I'll", "we've", "THEY'RE", "it'S", "'sup", "rock'n'roll", "he'd", "\u017f", "'\u017f", "K's"),
    *("na\xefve", "Stra\xdfe", "\ufb01ne", "\u216b", "\xbd", "x\xb2", "\ua66e", "\u01c5", "\u02b0"),
)
CODE = (
    *(
        "def f(x):\n    return x[0]\n",
        "    for (int i = 0; i < n; i++) {\n\t\tp[i] += 1;\n\t}\r\n",
        "if (a && b) || !c {}",
    ),
    *('<html><body class="x">&nbsp;</body></html>', "x = {'a': 1.5e-3, \"b\": [1,2,3]}", "#include <stdio.h>"),
    *("SELECT * FROM t WHERE id=12345;", "https://example.com/a?b=c&d=%20#e", "3.14159 1,000,000 2026-11-29 12:34:56"),
)
EMOJI = (
    *("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f44d\U0001f3fd"),
    *("\U0001f1e9\U0001f1ea", "e\u0301", "a\u0308\u0301", "\u1100\u1161\u11a8", "q\u0323\u0307", "q\u0307\u0323"),
    *("1\ufe0f\u20e3", "\u200d", "\ufeff", "\xad", "\u0915\u094d\u0937\u093f"),
)
SPACES = (
    *(" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\xa0", "\u3000", "\u2028", "\x85", "\x0b"),
    *("\x0c", " \n", " \n \n ", "\x00", "\x01", "\x1c", "\x1f", "\x7f", "\u200b", "\u2581", "\u2581\u2581", " \u2581"),
)
SPECIAL = (
    *(
        "<|endoftext|>",
        "<|begin_of_text|>",
        "<|im_start|>",
        "<|im_end|>",
        "<s>",
        "</s>",
        "<unk>",
        "<pad>",
        "<|eot_id|>",
    ),
    *("<0x41>", "<0xE2>", "<extra_id_0>", "<|end", "[INST]", "<mask>", "<|fim_prefix|>", "<sep>"),
)


def _characters(rng: random.Random) -> str:
    begin, end = rng.choice(SCRIPTS)
    return "".join(chr(rng.randrange(begin, end)) for _ in range(rng.randint(1, 8)))


def _any(rng: random.Random) -> str:
    codes = (rng.randrange(0x110000) for _ in range(3))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def lines(count: int, seed: int, plain: Sequence[str] = ()) -> list[str]:
    """Some lines of parts that are drawn; ``plain`` are lines of which some are among the parts."""
    rng = random.Random(seed)
    kinds: tuple[tuple[int, Callable[[], str]], ...] = (
        (30, lambda: rng.choice(WORDS)),
        (15, lambda: _characters(rng)),
        (10, lambda: rng.choice(CODE)),
        (7, lambda: rng.choice(EMOJI)),
        (18, lambda: rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 5])),
        (4, lambda: rng.choice(SPECIAL)),
        (6, lambda: str(rng.randrange(10 ** rng.randint(1, 9)))),
        (2, lambda: bytes(rng.randrange(256) for _ in range(rng.randint(1, 8))).decode("utf-8", "replace")),
        (2, lambda: _any(rng)),
        (2, lambda: rng.choice("ab =-!.*#") * rng.randint(2, 60)),
        (4, lambda: rng.choice(plain or WORDS)),
    )
    weights, makers = zip(*kinds, strict=True)

    def part(maker: Callable[[], str]) -> str:
        return maker() + " " * rng.randint(0, 1)

    return ["".join(map(part, rng.choices(makers, weights, k=rng.randint(1, 12)))) for _ in range(count)]
