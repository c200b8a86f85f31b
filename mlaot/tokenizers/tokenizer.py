"""A tokenizer: the bytes of each token, and the conversion of texts to tokens.

This slow implementation is the reference for C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from mlaot.tokenizers import unigram, wordpiece
from mlaot.tokenizers.automaton import Automaton
from mlaot.tokenizers.frames import Frame
from mlaot.tokenizers.merging import Pair, Pairs, merge
from mlaot.tokenizers.normalizer import Normalizer
from mlaot.tokenizers.steps import BLANKS, MARK, Cut, Prefix

MAX_TOKENS, MAX_TOKEN_BYTES = 1 << 22, 1 << 12
CONTINUES, CLOSES = b"\xfe", b"\xff"  # no text has these bytes


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of any kind.

    ``tokens`` has the bytes that each token adds to a text. ``pieces`` are the texts that are found in a normalized
    text: those of tokens, and after them the ``extra`` characters, which are no tokens, but parts of some.
    ``byte_tokens`` are the tokens of the 256 bytes: those that texts are merged from (``byte_level``), or else those
    for characters without a piece.
    """

    kind: str  # "characters", "bytes", "bpe", "unigram", "wordpiece"
    tokens: tuple[bytes, ...]
    pieces: Mapping[bytes, int]
    extra: tuple[bytes, ...] = ()
    pairs: Pairs = field(default_factory=dict)
    scores: tuple[float, ...] = ()  # unigram: of each token
    byte_level: bool = False
    byte_tokens: tuple[int, ...] = ()  # -1: none
    unknown: int = -1  # the token of what no other token is for; -1: none
    unknown_score: float = 0.0
    fuses_unknown: bool = False  # many in a row are one
    single: bool = False  # scores are added in float32
    whole: bool = False  # a part that is a token is this token, whatever would be merged
    continues: bool = False  # pieces within words begin with CONTINUES
    closes: bool = False  # pieces that end words end with CLOSES
    continuing: Mapping[bytes, int] = field(default_factory=dict)  # wordpiece: what is found within a word
    longest_word: int = 0  # wordpiece: in characters; longer ones are unknown
    cuts: tuple[Cut | Prefix, ...] = ()  # what is done to a normalized text, in parts then
    normalizer: Normalizer = field(default_factory=Normalizer)
    added: Mapping[bytes, int] = field(default_factory=dict)  # texts that are tokens before all else
    added_later: Mapping[bytes, int] = field(default_factory=dict)  # the same of normalized texts
    left: frozenset[int] = frozenset()  # of these, those that take whitespace in front of them
    right: frozenset[int] = frozenset()  # and behind
    alone: frozenset[int] = frozenset()  # those that are none next to a word
    words: Automaton | None = None  # finds words' characters, for those
    special: frozenset[int] = frozenset()  # of these, those that a caller may want to be plain text
    silent: frozenset[int] = frozenset()  # tokens that add nothing to a text
    unused: frozenset[int] = frozenset()  # pieces that are merged, and then taken apart
    begin: tuple[int, ...] = ()  # stand in front of each text
    closing: tuple[int, ...] = ()  # and behind one that is whole
    end: tuple[int, ...] = ()  # each of them ends a text
    drops_space: bool = False  # that a first token begins with
    opening: Mapping[int, bytes] = field(default_factory=dict)  # what else first tokens add
    frame: Frame | None = None  # of texts that are read as a whole, where a file says more than begin and closing

    @cached_property
    def kept(self) -> frozenset[bytes]:
        """The pieces that the normalizer keeps, as they are in a normalized text."""
        marks, kept = self.normalizer.marks, self.normalizer.kept
        return frozenset(k.replace(MARK.encode(), b" ") if marks else k for k in kept if not (marks and b" " in k))

    @property
    def is_strict(self) -> bool:
        """Tell whether texts may have characters without a token."""
        return self.kind == "characters"

    def encode(self, text: str, *, special: bool = True, begin: bool = True, end: bool = False) -> list[int]:
        """Return the tokens of a text. With ``special`` texts of special tokens become these tokens.

        ``begin`` and ``end`` add the tokens before a text and after a complete text.
        """
        found = [*self.begin] if begin else []
        for place, part, token in self._parts(text, self.added, special):
            if token >= 0:
                found.append(token)
                continue
            for behind, inner, later in self._parts(self.normalizer.apply(part), self.added_later, special):
                found += self._encode(inner, place + behind == 0) if later < 0 else [later]
        return [*found, *self.closing] if end else found

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens. Bytes that are not UTF-8 become replacement characters."""
        found, first = list[bytes](), True
        for token in tokens:
            if not 0 <= token < len(self.tokens):
                raise ValueError(f"expected tokens from 0 to {len(self.tokens) - 1}, got {token}")
            found.append(self.piece(token, first))
            first = first and self.hides(token)
        return b"".join(found).decode(errors="replace")

    def piece(self, token: int, first: bool = False) -> bytes:
        """Return the bytes that a token adds to a text, if it is a token.

        ``first`` if only hidden tokens precede it.
        """
        piece = self.tokens[token] if 0 <= token < len(self.tokens) and token not in self.silent else b""
        if first and piece and token in self.opening:
            return self.opening[token]
        return dropped(piece, first and self.drops_space)

    def hides(self, token: int) -> bool:
        """Tell whether a token at the beginning of a text is hidden, such as spaces that are stripped."""
        piece = self.piece(token)
        return not piece or (self.normalizer.strips and piece == b" ")

    def _parts(self, text: str, added: Mapping[bytes, int], special: bool) -> Iterator[tuple[int, str, int]]:
        """Yield the parts of a text between added tokens, and the added tokens.

        Each comes with its place, and its token or -1.
        """
        begin, words = 0, self.words
        for match in _pattern(tuple(added)).finditer(text) if added else ():
            token, start, end = added[match[0].encode()], match.start(), match.end()
            if start < begin:
                continue  # another one took it
            if token in self.special and not special:
                continue
            beside = text[start - 1 : start], text[end : end + 1]
            if token in self.alone and words and any(words.end_of(c, 0, {}) for c in beside):
                continue
            if token in self.left and start > begin:
                start = begin + len(text[begin:start].rstrip(BLANKS))
            while token in self.right and end < len(text) and text[end] in BLANKS:
                end += 1
            if start > begin:
                yield begin, text[begin:start], -1
            yield start, text[start:end], token
            begin = end
        if begin < len(text):
            yield begin, text[begin:], -1

    def _encode(self, text: str, first: bool) -> list[int]:
        parts = [text.encode()]
        for cut in self.cuts:
            parts = [made for i, part in enumerate(parts) for made in cut.apply(part, first and i == 0)]
        return [token for part in parts for token in self._tokens(part)]

    def _tokens(self, part: bytes) -> list[int]:
        if self.kind == "wordpiece":
            return wordpiece.pieces(part, self.pieces, self.continuing, self.longest_word) or [self.unknown]
        if self.kind == "unigram":
            return self._segment(part)
        return self._merged_bytes(part) if self.byte_level else self._merged_characters(part.decode())

    def _segment(self, text: bytes) -> list[int]:
        found, unknown = list[int](), (self.unknown, self.unknown_score)
        for token, piece in unigram.segment(text, self.scored, self._longest, unknown, self.single):
            if token != self.unknown:
                found.append(token)
            elif self.byte_tokens:
                found += self._unknown(piece)
            elif not found or found[-1] != self.unknown:
                found.append(token)
        return found

    @cached_property
    def scored(self) -> dict[bytes, tuple[int, float]]:
        """The pieces of a unigram model, with their tokens and scores."""
        return {piece: (token, self.scores[token]) for piece, token in self.pieces.items()}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.pieces), default=0)

    def _merged_bytes(self, part: bytes) -> list[int]:
        if self.whole and part in self.pieces:
            return [self.pieces[part]]
        if self.continues or self.closes:
            given = [self.pieces.get(self._affixed(part, i, i + 1), -1) for i in range(len(part))]
        else:
            given = [self.byte_tokens[byte] for byte in part]
        return merge([token for token in given if token >= 0], self.pairs)

    def _affixed(self, part: bytes, begin: int, end: int) -> bytes:
        """Return the piece of a character or a byte of a part."""
        prefix = CONTINUES if self.continues and begin > 0 else b""
        return prefix + part[begin:end] + (CLOSES if self.closes and end == len(part) else b"")

    def _merged_characters(self, text: str) -> list[int]:
        found, made, follows = list[int](), dict[int, Pair](), False  # follows: the last token is the unknown one

        def add(symbol: int, characters: str) -> None:
            nonlocal follows
            if symbol in made and symbol in self.unused:
                for part in made[symbol]:
                    add(part, "")
            elif 0 <= symbol < len(self.tokens) and symbol != self.unknown:
                found.append(symbol)
                follows = False
            else:
                piece = characters.encode() if symbol < len(self.tokens) else self.extra[symbol - len(self.tokens)]
                tokens = self._unknown(piece)
                found.extend(tokens if not (follows and self.fuses_unknown and tokens == [self.unknown]) else [])
                follows = tokens == [self.unknown]

        for part in self._stretches(text):
            if (kept := part.encode()) in self.kept:
                add(self.pieces[kept], part)
                continue
            symbols, unknown = list[int](), list[str]()
            place = 0
            for character in part:
                begin, place = place, place + len(character.encode())
                symbol = self.pieces.get(self._affixed(kept, begin, place), -1)
                tokens = self._unknown(character.encode()) if symbol < 0 else [symbol]
                symbols += tokens
                unknown += [character] * tokens.count(self.unknown)
            for symbol in merge(symbols, self.pairs, made if self.unused else None):
                add(symbol, unknown.pop(0) if symbol == self.unknown else "")
        return found

    def _stretches(self, text: str) -> list[str]:
        """Cut a text at the pieces that normalization keeps."""
        kept = "|".join(re.escape(piece.decode()) for piece in sorted(self.kept, key=len, reverse=True))
        return [part for part in re.split(f"({kept})", text) if part] if kept else [text]

    def _unknown(self, piece: bytes) -> list[int]:
        """Return the tokens of characters without a piece."""
        if self.byte_tokens:
            written = piece.replace(b" ", MARK.encode()) if self.normalizer.marks else piece
            return [self.byte_tokens[byte] for byte in written]
        if self.is_strict:
            raise ValueError(f"the tokenizer has no {piece.decode()!r}")
        return [self.unknown] if self.unknown >= 0 else []


def dropped(piece: bytes, drops_space: bool) -> bytes:
    """Return a piece without its leading space, if that is dropped."""
    return piece.removeprefix(b" ") if drops_space else piece


@cache
def _pattern(texts: tuple[bytes, ...]) -> re.Pattern[str]:
    longest_first = sorted((text.decode() for text in texts), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def characters(text: str) -> Tokenizer:
    """Return the tokenizer whose tokens are the characters of a text, each once, in the order of their codes."""
    tokens = tuple(character.encode() for character in sorted(set(text)))
    return Tokenizer("characters", tokens, {token: i for i, token in enumerate(tokens)})


def raw_bytes() -> Tokenizer:
    """Return the tokenizer whose 256 tokens are the bytes."""
    tokens = tuple(bytes([byte]) for byte in range(256))
    return Tokenizer("bytes", tokens, {t: i for i, t in enumerate(tokens)}, byte_level=True, byte_tokens=(*range(256),))
