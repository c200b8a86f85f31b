"""The tokenizer of a language model is found beside it, inside it, or where its user says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlaot import llm, tokenizers
from mlaot.build.sources import record_reads
from mlaot.errors import MlaotError, building
from mlaot.llm.declare import declare_from_settings
from mlaot.llm.find_tokenizer import find_tokenizer, of_gguf
from mlaot.llm.gguf import GgufTokenizer
from mlaot.settings.reading import load_settings
from mlaot.tokenizers import Tokenizer, characters, sentencepiece

from ..projects import build_module, load
from ..tokenizers.stored import TEXTS, file_of, tokenizer_of
from .test_llm import model_of, write

NOTHING = GgufTokenizer("", "", [], [], [], [], None, None, None, None, None, None)


def same(found: Tokenizer, expected: Tokenizer) -> bool:
    """Whether texts have the same tokens, and tokens the same texts."""
    tokens = range(len(expected.tokens))
    return [found.encode(text) for text in TEXTS] == [expected.encode(text) for text in TEXTS] and all(
        found.piece(i, first) == expected.piece(i, first) for i in tokens for first in (False, True)
    )


@pytest.mark.parametrize("case", ["model bpe with bytes", "model bpe of a user"])
def test_pieces_of_a_gguf_file(case: str, tmp_path: Path) -> None:
    """They are those of SentencePiece, without its normalization."""
    proto = sentencepiece.parse(Path(case), file_of(case))
    pieces = [*sentencepiece._pieces(proto)]
    expected = tokenizer_of(case, tmp_path)
    said = replace(
        NOTHING,
        model="llama",
        tokens=[piece.text.decode() for piece in pieces],
        scores=[piece.score for piece in pieces],
        types=[piece.kind for piece in pieces],
        begin=1,
        end=2,
        adds_space=expected.normalizer.prefixes,
    )
    found = of_gguf(Path("m.gguf"), said)
    assert found.begin == (1,) and found.end == (2,)
    assert of_gguf(Path("m.gguf"), replace(said, adds_begin=False)).begin == ()
    closed = of_gguf(Path("m.gguf"), replace(said, adds_end=True))
    assert closed.end and of_gguf(Path("m.gguf"), said).closing == () and closed.closing == closed.end
    plain = replace(expected.normalizer, charsmap={}, strips=False)
    assert same(found, replace(expected, normalizer=plain, begin=(1,), drops_space=plain.prefixes))
    assert not same(of_gguf(Path("m.gguf"), replace(said, adds_space=not said.adds_space)), found)
    assert of_gguf(Path("m.gguf"), replace(said, adds_space=None)).normalizer.prefixes


@pytest.mark.parametrize(
    ("case", "pre"), [("json gpt2", "gpt-2"), ("json llama3", "llama-bpe"), ("json qwen2", "qwen2")]
)
def test_merges_of_a_gguf_file(case: str, pre: str, tmp_path: Path) -> None:
    expected, content = tokenizer_of(case, tmp_path), json.loads(file_of(case))
    vocabulary = content["model"]["vocab"] | {row["content"]: row["id"] for row in content["added_tokens"]}
    special = {row["id"]: 3 if row["special"] else 4 for row in content["added_tokens"]}
    merges = [row if isinstance(row, str) else " ".join(row) for row in content["model"]["merges"]]
    said = replace(
        NOTHING,
        model="gpt2",
        pre=pre,
        tokens=sorted(vocabulary, key=vocabulary.__getitem__),
        types=[special.get(i, 1) for i in range(len(vocabulary))],
        merges=merges,
        end=0,
    )
    found = of_gguf(Path("m.gguf"), said)
    assert same(found, replace(expected, begin=()))
    assert found.end == (0,)
    for wrong, message in (
        ({"pre": "other"}, "tokenizer.ggml.pre: expected one of gpt-2, .* got 'other'"),
        ({"model": "bert"}, "tokenizer.ggml.model: expected 'llama' or 'gpt2', got 'bert'"),
        ({"tokens": said.tokens[:-1] + said.tokens[:1]}, "expected a text for each token, got one twice"),
        ({"merges": ["a b c"]}, r"m.gguf: model.merges\[0\]: expected two tokens, got"),
    ):
        with pytest.raises(MlaotError, match=message):
            of_gguf(Path("m.gguf"), replace(said, **wrong))  # type: ignore[arg-type]


def model(folder: Path, count: int) -> Path:
    """A model of that many tokens."""
    config, tensors = model_of("llama")
    names = ("model.embed_tokens.weight", "lm_head.weight")
    tensors |= {name: tensors[name].repeat(-(-count // 19), axis=0)[:count].copy() for name in names}
    return write(folder, config | {"vocab_size": count}, tensors)


def test_the_tokenizer_of_a_folder(tmp_path: Path) -> None:
    """The module speaks strings; texts begin and end as the files say."""
    tokenizer = tokenizer_of("json gpt2", tmp_path)
    count = len(tokenizer.tokens)
    path = model(tmp_path / "model", count + 3)
    (path / "tokenizer.json").write_bytes(file_of("json gpt2"))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    nn = load(build_module(llm.load(path, 12), "speaks", tmp_path / "site", ("base",)))
    assert nn.encode("the king and the queen") == tokenizer.encode("the king and the queen")
    assert nn.decode(nn.encode("the king")) == "the king"
    tokens = nn.encode("the k")
    answer = "".join(nn.generate("the k", max_tokens=4, temperature=0))
    text = nn.Model()
    read = []
    for _ in range(4):
        scores = text.forward(tokens if not read else read[-1:]).tolist()
        read.append(scores.index(max(scores)))
    read = read[: next((i for i, token in enumerate(read) if token in (5, 6)), 4)]
    assert answer == nn.decode(read)


def test_the_tokenizer_that_settings_name(tmp_path: Path) -> None:
    path = model(tmp_path / "model", 800)
    (tmp_path / "words.json").write_bytes(file_of("json characters"))
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname = 'speaker'\n[tool.mlaot.models.nn]\nllm = 'model'\ntokenizer = 'words.json'\nslides = true\n"
        "dims = { context = 8 }\n"
    )
    settings = load_settings(tmp_path)
    traced = declare_from_settings(settings, settings.models[0]).trace()
    assert traced.generation is not None and traced.generation.slides and traced.generation.context == 8
    assert traced.generation.tokenizer != b""
    assert find_tokenizer(path, None, 800) is None


def test_a_tokenizer_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(tmp_path / "model", 19)
    with pytest.raises(MlaotError, match="the tokenizer: expected the tokenizer of a model of 19 tokens, got 20"):
        llm.load(path, tokenizer=characters("abcdefghijklmnopqrst"))
    with pytest.raises(MlaotError, match=r"no file or folder none.json; expected a tokenizer"):
        llm.load(path, tokenizer="none.json")
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(MlaotError, match=r"tokenizer.json"):
        llm.load(path, tokenizer=path / "tokenizer.json")
    with building(tmp_path):
        declared: Any = llm.load(path)
    assert declared.trace().generation.tokenizer == b""
    said = capsys.readouterr().err
    assert "warning: the module takes tokens and no strings, since its tokenizer cannot be read: " in said


def test_a_build_notes_what_tokenizers_are_read_from(tmp_path: Path) -> None:
    """Wherever the files are, and whoever reads them: a changed one makes a module stale."""
    project, words = tmp_path / "project", tmp_path / "words"
    project.mkdir()
    words.mkdir()
    (words / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (words / "merges.txt").write_text("a b\n")
    (words / "generation_config.json").write_text("{}")
    with record_reads(project, tmp_path / "out") as read:
        tokenizers.load(words)
    assert [path.name for path in read] == ["generation_config.json", "merges.txt", "vocab.json"]
