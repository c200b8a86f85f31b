"""The C of tokenizers as a shared library. Blocks and texts lie before pages that cannot be read."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np

from mlaot.tokenizers import Tokenizer, pack

from .. import instrumented
from ..compiled import guarded

SOURCE = """
#include "runtime/tokenizer.c"

ptrdiff_t encode(const char *packed, const char *text, ptrdiff_t bytes, int special, int begin, int end,
                 int32_t **tokens)
{
    const Tokenizer tokenizer = tokenizer_view(packed);
    return tokenizer_encode(&tokenizer, text, bytes, special, begin, end, tokens);
}

ptrdiff_t piece(const char *packed, int32_t token, int first, const char **bytes)
{
    const Tokenizer tokenizer = tokenizer_view(packed);
    return tokenizer_piece(&tokenizer, token, first, bytes);
}

int hides(const char *packed, int32_t token)
{
    const Tokenizer tokenizer = tokenizer_view(packed);
    return tokenizer_hides(&tokenizer, token);
}

int ends(const char *packed, int32_t token)
{
    const Tokenizer tokenizer = tokenizer_view(packed);
    return tokenizer_ends(&tokenizer, token);
}

void drop(int32_t *tokens)
{
    free(tokens);
}
"""
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror")


def library(folder: Path, *flags: str) -> ctypes.CDLL:
    """Compile the C, with all warnings as errors."""
    source, made = folder / "tokenizer_library.c", folder / "tokenizer_library.so"
    source.write_text(SOURCE)
    options = ["-std=c11", *WARNINGS, "-fPIC", "-shared", f"-I{instrumented.TEMPLATES}", *flags]
    subprocess.run([*os.environ.get("CC", "cc").split(), *options, str(source), "-o", str(made)], check=True)
    loaded = ctypes.CDLL(str(made))
    loaded.encode.restype = loaded.piece.restype = ctypes.c_ssize_t
    return loaded


class Compiled:
    """A packed tokenizer in C, with the methods of ``Tokenizer``."""

    def __init__(self, code: ctypes.CDLL, tokenizer: Tokenizer) -> None:
        packed = pack(tokenizer)
        self.code, self.memory = code, guarded(len(packed))
        self.memory[:] = np.frombuffer(packed, np.uint8)
        self.memory.setflags(write=False)
        self.packed = ctypes.c_void_p(self.memory.ctypes.data)

    def encode(self, text: str | bytes, *, special: bool = True, begin: bool = True, end: bool = False) -> list[int]:
        """The tokens of a text; negative counts are errors."""
        data, found = text.encode() if isinstance(text, str) else text, ctypes.POINTER(ctypes.c_int32)()
        memory = guarded(len(data))
        memory[:] = np.frombuffer(data, np.uint8)
        at, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_ssize_t(len(data))
        count = self.code.encode(self.packed, at, size, int(special), int(begin), int(end), ctypes.byref(found))
        if count < 0:
            raise ValueError(count)
        tokens = found[:count]
        self.code.drop(found)
        return tokens

    def piece(self, token: int, first: bool = False) -> bytes:
        """The bytes of a token."""
        found = ctypes.POINTER(ctypes.c_char)()
        size = self.code.piece(self.packed, ctypes.c_int32(token), int(first), ctypes.byref(found))
        return bytes(found[:size])

    def hides(self, token: int) -> bool:
        """Whether nothing is seen of a token that a text begins with."""
        return bool(self.code.hides(self.packed, ctypes.c_int32(token)))

    def ends(self, token: int) -> bool:
        """Whether a token ends a text."""
        return bool(self.code.ends(self.packed, ctypes.c_int32(token)))
