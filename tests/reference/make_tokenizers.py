"""Write tokenizers.npz: small tokenizers of tokenizers, tiktoken and sentencepiece, and the tokens of some texts.

    python -m tests.reference.make_tokenizers TEXT

``TEXT`` is a plain text to learn tokens from, beside mixed ones. Needs the three packages.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tiktoken
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from mlaot.tokenizers import patterns

from ..tokenizers.mixed import SPECIAL, lines

Encode = Callable[[str], list[int]]
TIKTOKEN = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": patterns.O200K,
}
MARK = "\u2581"
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram", "normalization_rule_tsv": "RULES", "vocab_size": 700},
    "unigram with bytes": {
        **{"model_type": "unigram", "byte_fallback": True, "vocab_size": 900, "normalization_rule_name": "identity"},
        **{"user_defined_symbols": ["<sep>", "the", "foo bar", "[INST]"], "remove_extra_whitespaces": False},
    },
    "bpe": {"model_type": "bpe", "normalization_rule_tsv": "RULES", "vocab_size": 700},
    "bpe with bytes": {
        **{"model_type": "bpe", "byte_fallback": True, "vocab_size": 900, "normalization_rule_name": "identity"},
        **{"remove_extra_whitespaces": False, "split_digits": True, "allow_whitespace_only_pieces": True},
    },
    "bpe of a user": {
        **{"model_type": "bpe", "normalization_rule_tsv": "RULES", "vocab_size": 700, "split_by_whitespace": False},
        **{"user_defined_symbols": ["<sep>", "the", "[INST]", f"{MARK}{MARK}"], "add_dummy_prefix": False},
    },
}
RULES = (
    ("\t", " "),
    ("\r \n", " "),
    ("\u3000", " "),
    ("e \u0301", "\xe9"),
    ("\ufb01", "f i"),
    ("\x01", ""),
    ("\xdf", "s s"),
)
RULES += (("A", "a"), ("\u2028", " "), ("1 \ufe0f \u20e3", "1"), ("\xbd", "1 \u2044 2"), ("\xa0", " "))


def byte_level(pattern: str, learn: list[str], nfc: bool = False) -> tokenizers.Tokenizer:
    """A byte-level BPE."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=pattern == patterns.LLAMA3))
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, whole]) if pattern else whole
    made.normalizer = normalizers.NFC() if nfc else None
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        learn,
        trainers.BpeTrainer(vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    made.add_tokens(["\n\n\n", "<extra_id_0>"])
    begin = [("<|im_start|>", made.token_to_id("<|im_start|>"))]
    made.post_processor = processors.TemplateProcessing("<|im_start|> $A", special_tokens=begin)
    return made


def characters(learn: list[str], fuses: bool) -> tokenizers.Tokenizer:
    """A BPE of characters, as Llama 2 is written."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuses, byte_fallback=fuses))
    made.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    made.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256) if fuses)]
    words = [MARK + word for line in learn for word in line.split(" ")]
    made.normalizer, kept = None, made.normalizer
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special[:3], limit_alphabet=120, show_progress=False)
    made.train_from_iterator(words, trainer)
    content = json.loads(made.to_str())
    for token in special[3:]:
        content["model"]["vocab"][token] = len(content["model"]["vocab"])
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    made.normalizer = kept
    return made


def unigram(learn: list[str]) -> tokenizers.Tokenizer:
    """A unigram model of words, as T5 is written."""
    made = tokenizers.Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=600, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False
    )
    made.train_from_iterator(learn, trainer)
    return made


def cases(learn: list[str], folder: Path) -> Iterator[tuple[str, bytes, Encode, Encode | None]]:
    """The name of each case, its file, and what encodes, with special tokens and without."""
    named = {
        "json gpt2": byte_level("", learn),
        "json llama3": byte_level(patterns.LLAMA3, learn),
        "json qwen2": byte_level(patterns.QWEN2, learn, nfc=True),
        "json o200k": byte_level(patterns.O200K, learn),
        "json characters": characters(learn, fuses=False),
        "json characters with bytes": characters(learn, fuses=True),
        "json unigram": unigram([line for line in learn if line.isascii()]),
    }
    for name, one in named.items():
        content = json.dumps(json.loads(one.to_str()), separators=(",", ":")).encode()
        one, plain = (tokenizers.Tokenizer.from_str(content.decode()) for _ in range(2))
        plain.encode_special_tokens = True
        yield (
            *(name, content, lambda text, t=one: t.encode(text, add_special_tokens=False).ids),
            lambda text, t=plain: t.encode(text, add_special_tokens=False).ids,
        )
    ranks = {bytes([byte]): byte for byte in range(256)}
    pieces = {*ranks}
    for name, one in named.items():
        if name == "json llama3":
            order = one.get_vocab()
            of = {c: b for b, c in bytes_to_characters().items()}
            for token in sorted(order, key=lambda t: order[t]):
                spelled = bytes(of[c] for c in token) if all(c in of for c in token) and token not in SPECIAL else b""
                if len(spelled) > 1 and spelled not in pieces:
                    pieces.add(spelled)
                    ranks[spelled] = len(ranks)
    for name, pattern in TIKTOKEN.items():
        made = tiktoken.Encoding(
            name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)}
        )
        rows = b"\n".join(base64.b64encode(token) + b" %d" % rank for token, rank in ranks.items())
        yield f"ranks {name}", rows, lambda text, m=made: m.encode(text, allowed_special="all"), made.encode_ordinary
    rules, texts = folder / "rules.tsv", folder / "texts.txt"
    rules.write_text("".join(f"{_codes(a)}\t{_codes(b)}\n" for a, b in RULES))
    few = [text for i, text in enumerate(learn) if i % 30 == 0 or text.isascii()]  # of few characters
    texts.write_text("\n".join(line for text in few for line in text.replace("\0", "").split("\n") if line))
    for name, options in MODELS.items():
        options = {key: str(rules) if value == "RULES" else value for key, value in options.items()}
        prefix = str(folder / name)
        sentencepiece.SentencePieceTrainer.train(
            input=str(texts),
            model_prefix=prefix,
            minloglevel=2,
            character_coverage=0.98,
            hard_vocab_limit=False,
            **options,
        )
        found = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
        yield f"model {name}", Path(prefix + ".model").read_bytes(), found.encode, None


def bytes_to_characters() -> dict[int, str]:
    """The characters of byte-level vocabularies, asked of the library."""
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain = {byte: pre.pre_tokenize_str(chr(byte))[0][0] for byte in range(128)}
    for code in range(128, 0x800):
        spelled = pre.pre_tokenize_str(chr(code))[0][0]
        plain |= dict(zip(chr(code).encode(), spelled, strict=True))
    for code in (0x800, 0xFFFF, 0x10000, 0x10FFFF, *range(0x1000, 0x10000, 0x1000), *range(0x10000, 0x110000, 0x10000)):
        if not 0xD800 <= code < 0xE000:
            plain |= dict(zip(chr(code).encode(), pre.pre_tokenize_str(chr(code))[0][0], strict=True))
    return plain


def _codes(text: str) -> str:
    return " ".join(f"{ord(c):X}" for part in text.split(" ") for c in (part or " ")) if text else ""


def main() -> None:
    plain = Path(sys.argv[1]).read_text().split("\n")
    learn, texts = lines(3000, 7, plain) + plain[:3000], ["", *lines(220, 1, plain)]
    arrays: dict[str, Any] = {"texts": np.frombuffer(json.dumps(texts).encode(), np.uint8)}
    with tempfile.TemporaryDirectory() as folder:
        for name, content, special, without in cases(learn, Path(folder)):
            arrays[f"{name}/file"] = np.frombuffer(content, np.uint8)
            for kind, encode in (("special", special if without else None), ("plain", without or special)):
                if encode is not None:
                    tokens = [encode(text) for text in texts]
                    arrays[f"{name}/{kind}"] = np.array([token for row in tokens for token in row], np.uint16)
                    arrays[f"{name}/{kind} counts"] = np.array([*map(len, tokens)], np.uint16)
    np.savez_compressed(Path(__file__).with_name("tokenizers.npz"), **arrays)


if __name__ == "__main__":
    main()
