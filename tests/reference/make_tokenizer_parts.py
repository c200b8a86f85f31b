"""Write tokenizer_parts.json: parts of tokenizer.json files around a few models, and the library's tokens and texts.

    python -m tests.reference.make_tokenizer_parts TEXT

``TEXT`` is a plain text to learn tokens from, beside mixed ones. Needs the package tokenizers.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from ..tokenizers.mixed import lines
from ..tokenizers.nasty import NASTY

MARK = "\u2581"
Part = dict[str, Any]


def split(pattern: str, behavior: str = "Isolated", invert: bool = False, kind: str = "Regex") -> Part:
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def cuts(*parts: Part) -> Part:
    return {"type": "Sequence", "pretokenizers": [*parts]}


def changes(*parts: Part) -> Part:
    return {"type": "Sequence", "normalizers": [*parts]}


def punctuation(behavior: str) -> Part:
    return {"type": "Punctuation", "behavior": behavior}


def byte_level(regex: bool = False, prefix: bool = False) -> Part:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme: str = "always", splits: bool = True) -> Part:
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": splits}


def replace(pattern: str, content: str, kind: str = "String") -> Part:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def added(content: str, **flags: bool) -> Part:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"content": content, **plain, **flags}


def bert(**flags: bool | None) -> Part:
    plain = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return {"type": "BertNormalizer", **plain, **flags}


DIGITS, DIGIT = ({"type": "Digits", "individual_digits": one} for one in (False, True))
WORDS, BLANKS, PRE_BERT = ({"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"))
BYTES, SPACED = byte_level(), metaspace()
PIECES = {"type": "WordPiece", "prefix": "##", "cleanup": True}
SENTENCE = {
    "type": "Sequence",
    "decoders": [
        replace(MARK, " "),
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LATER = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
SHORT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_CAPITAL, _SMALL = (rf"[\p{{L{kind}}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]" for kind in "ul")
KIMI = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}*{_SMALL}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CAPITAL}+{_SMALL}*{CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BEHAVIORS = ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext")
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
TAGS = [
    added("<|end|>", special=True, rstrip=True),
    added("<|left|>", special=True, lstrip=True),
    added("<|both|>", lstrip=True, rstrip=True),
    added("word", single_word=True),
    added("Lower Case", normalized=True),
    added("\u00e9t\u00e9", normalized=True, single_word=True),
    added("<mask>", special=True, lstrip=True, single_word=True),
    added("  ", normalized=True),
]

# The model, the normalizer, the pre-tokenizer, the decoder, and the added tokens.
CASES: dict[str, tuple[str, Part | None, Part | None, Part | None, list[Part]]] = {
    "smollm": ("bytes", None, cuts(DIGIT, byte_level(True)), BYTES, []),
    "starcoder": ("bytes", None, cuts(DIGITS, byte_level(True, True)), BYTES, []),
    "falcon": (
        "bytes",
        None,
        cuts(punctuation("Contiguous"), byte_level(True), DIGITS, split("[0-9][0-9][0-9]")),
        *(BYTES, []),
    ),
    "deepseek": ("bytes", None, cuts(split(r"\p{N}{1,3}"), split(HAN), split(DEEPSEEK3), byte_level()), BYTES, []),
    "deepseek coder": (
        "bytes",
        changes(),
        cuts(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN), DIGIT, byte_level()),
        *(BYTES, []),
    ),
    "deepseek llm": ("bytes", None, cuts(split(r"\s+$"), split(r"\s?[!-/:-~]+"), DIGIT, byte_level()), BYTES, []),
    "tekken": ("bytes", None, cuts(split(TEKKEN), byte_level()), BYTES, []),
    "bloom": ("bytes", None, cuts(split(BLOOM), byte_level()), BYTES, []),
    "phi4": ("bytes", None, cuts(split(CONTRACTIONS + LATER, "Removed", True), byte_level()), BYTES, TAGS),
    "short": ("bytes", {"type": "NFC"}, cuts(split(SHORT), byte_level()), BYTES, []),
    "neox": ("bytes", {"type": "NFC"}, byte_level(True), BYTES, [added("  "), added("    ", normalized=True)]),
    "roberta": ("bytes", None, byte_level(True, True), BYTES, [added("<mask>", special=True, lstrip=True)]),
    **{
        f"split {behavior} {invert}": ("bytes", None, cuts(split("th|[.]", behavior, invert), byte_level()), BYTES, [])
        for behavior in BEHAVIORS
        for invert in (False, True)
    },
    **{
        f"punctuation {behavior}": (
            "bytes",
            None,
            cuts({"type": "Punctuation", "behavior": behavior}, byte_level()),
            BYTES,
            [],
        )
        for behavior in BEHAVIORS
    },
    "string": ("bytes", None, cuts(split("the", "MergedWithNext", kind="String"), byte_level(True)), BYTES, []),
    "delimiter": ("bytes", None, cuts({"type": "CharDelimiterSplit", "delimiter": "e"}, byte_level()), BYTES, []),
    "gemma": ("characters", replace(" ", MARK), split(" ", "MergedWithPrevious", kind="String"), SENTENCE, TAGS),
    "llama": ("characters", changes({"type": "Prepend", "prepend": MARK}, replace(" ", MARK)), None, SENTENCE, TAGS),
    "phi3": ("characters", replace(" ", MARK), None, SENTENCE, TAGS),
    "metaspace": ("characters", None, metaspace(), SPACED, TAGS),
    "metaspace first": ("characters", None, metaspace("first", False), metaspace("first"), TAGS),
    "metaspace never": ("characters", None, cuts(DIGIT, metaspace("never")), metaspace("never"), []),
    "metaspace cut": (
        "characters",
        None,
        cuts(metaspace(), {"type": "Punctuation", "behavior": "Isolated"}, split(r"\s|a")),
        SPACED,
        [],
    ),
    "whitespace": ("unknown", None, WORDS, None, TAGS),
    "split words": ("unknown", {"type": "Lowercase"}, BLANKS, None, TAGS),
    "forms": ("characters", {"type": "NFKC"}, cuts(WORDS, metaspace()), SPACED, []),
    **{name: ("characters", {"type": name}, None, SENTENCE, TAGS) for name in ("NFD", "NFKD", "StripAccents", "Nmt")},
    "strip": (
        "characters",
        changes({"type": "Strip", "strip_left": True, "strip_right": True}, replace(" {2,}", " ", "Regex")),
        None,
        SENTENCE,
        [],
    ),
    "replace": (
        "characters",
        changes(
            replace("``", '"'),
            replace(r"[\p{M}\n]+", "", "Regex"),
            {"type": "Prepend", "prepend": "<>"},
            replace("ab|a", "x", "Regex"),
        ),
        *(BLANKS, SENTENCE, TAGS),
    ),
    "bert": ("pieces", bert(), PRE_BERT, PIECES, TAGS),
    "bert cased": ("pieces", bert(lowercase=False), PRE_BERT, {**PIECES, "cleanup": False}, []),
    "bert accents": ("pieces", bert(strip_accents=False, clean_text=False), PRE_BERT, PIECES, []),
    "unigram": ("unigram", changes({"type": "NFKC"}, replace(" {2,}", " ", "Regex")), metaspace(), SPACED, TAGS),
    "unigram words": ("unigram", None, cuts(BLANKS, metaspace()), SPACED, []),
    "clip": (
        "closed bytes",
        changes({"type": "NFC"}, replace(r"\s+", " ", "Regex"), {"type": "Lowercase"}),
        cuts(split(CLIP, "Removed", True), byte_level()),
        *(BYTES, TAGS),
    ),
    "gpt": ("closed", bert(), PRE_BERT, {"type": "BPEDecoder", "suffix": "</w>"}, []),
    "continued": ("continued", None, WORDS, PIECES, []),
    "kimi": ("bytes", None, cuts(split(KIMI), byte_level()), BYTES, []),
    "scripts": (
        *("characters", None),
        cuts(split(r"[\p{Hiragana}\p{Katakana}]+|\p{^Hangul}\p{Latin}+|[\p{Cyrl}&&\p{Lu}]|\P{Common}{2}"), metaspace()),
        *(SPACED, []),
    ),
    "unigram digits": ("unigram", {"type": "Lowercase"}, cuts(metaspace("first"), DIGIT, PRE_BERT), SPACED, []),
}
# Post-processors, which put tokens at both ends of a text.
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "B", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "A", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {n: {"id": n, "ids": ids, "tokens": ["x"] * len(ids)} for n, ids in (("A", [7, 8]), ("B", [9]))},
}
PROCESSORS: list[Part] = [
    {"type": "BertProcessing", "sep": ["b", 3], "cls": ["a", 2]},
    {"type": "RobertaProcessing", "sep": ["b", 5], "cls": ["a", 4], "trim_offsets": True, "add_prefix_space": True},
    TEMPLATE,
    {"type": "Sequence", "processors": [byte_level(), TEMPLATE]},
    byte_level(),
]


def learned(learn: list[str]) -> dict[str, Part]:
    """The models, each as a file has it."""
    plain, alphabet = [line for line in learn if line.isascii()], pre_tokenizers.ByteLevel.alphabet()
    found, unknown = dict[str, Part](), ["[UNK]"]
    for name, model, trainer, pre in (
        (
            *("bytes", models.BPE()),
            trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ),
        (
            *("characters", models.BPE(unk_token="<unk>", fuse_unk=True)),
            trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>"], limit_alphabet=200, show_progress=False),
            pre_tokenizers.Metaspace(),
        ),
        (
            *("unknown", models.BPE(unk_token="<unk>")),
            trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], limit_alphabet=90, show_progress=False),
            pre_tokenizers.WhitespaceSplit(),
        ),
        (
            *("pieces", models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30)),
            trainers.WordPieceTrainer(vocab_size=700, special_tokens=unknown, limit_alphabet=200, show_progress=False),
            pre_tokenizers.BertPreTokenizer(),
        ),
        (
            *("closed bytes", models.BPE(end_of_word_suffix="</w>")),
            trainers.BpeTrainer(
                vocab_size=700, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ),
        (
            *("closed", models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>")),
            trainers.BpeTrainer(
                **{"vocab_size": 500, "special_tokens": unknown, "limit_alphabet": 90, "show_progress": False},
                end_of_word_suffix="</w>",
            ),
            pre_tokenizers.BertPreTokenizer(),
        ),
        (
            *("continued", models.BPE(unk_token="[UNK]", continuing_subword_prefix="##")),
            trainers.BpeTrainer(
                **{"vocab_size": 500, "special_tokens": unknown, "limit_alphabet": 90, "show_progress": False},
                continuing_subword_prefix="##",
            ),
            pre_tokenizers.BertPreTokenizer(),
        ),
        (
            *("unigram", models.Unigram()),
            trainers.UnigramTrainer(vocab_size=400, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False),
            pre_tokenizers.Metaspace(),
        ),
    ):
        made = Tokenizer(model)
        made.pre_tokenizer = pre
        made.normalizer = normalizers.NFC()
        made.train_from_iterator(plain if name == "unigram" else learn, trainer)
        found[name] = json.loads(made.to_str())["model"]
    merged = found["characters"]
    for byte in range(256):
        merged["vocab"][f"<0x{byte:02X}>"] = len(merged["vocab"])
    merged["byte_fallback"] = True
    pieces = found["pieces"]["vocab"]
    for text in (*"!.,?'", "##'", "n't", "do not", "##n't", "##."):
        pieces.setdefault(text, len(pieces))
    return found


def content_of(all_models: dict[str, Part], name: str) -> Part:
    """A whole file."""
    model, normalizer, cut, decoder, tokens = CASES[name]
    vocabulary = all_models[model]["vocab"]
    size = len(vocabulary)
    rows = [{"id": size + i, **token} for i, token in enumerate(tokens)]
    return {
        **{"version": "1.0", "added_tokens": rows, "normalizer": normalizer, "pre_tokenizer": cut, "decoder": decoder},
        **{"post_processor": None, "model": all_models[model]},
    }


def main() -> None:
    plain = Path(sys.argv[1]).read_text().split("\n")
    all_models, texts = learned(lines(1500, 7, plain) + plain[:2000]), [*NASTY, *lines(25, 2, plain)]
    answers, files = dict[str, Part](), dict[str, Part]()
    for name in CASES:
        content = content_of(all_models, name)
        one = Tokenizer.from_str(json.dumps(content))
        tokens = [one.encode(text, add_special_tokens=False).ids for text in texts]
        answers[name] = {"tokens": tokens, "texts": [one.decode(row) for row in tokens]}
        files[name] = {**content, "model": CASES[name][0]}
    wrapped = list[Part]()
    for part in PROCESSORS:
        one = Tokenizer.from_str(json.dumps({**content_of(all_models, "clip"), "post_processor": part}))
        wrapped.append({"post_processor": part, "tokens": [one.encode(text).ids for text in texts[:5]]})
    stored = {"wrapped": wrapped, "models": all_models, "texts": texts, "files": files, "answers": answers}
    data = json.dumps(stored, separators=(",", ":")).encode()
    Path(__file__).with_name("tokenizer_parts.json.gz").write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
