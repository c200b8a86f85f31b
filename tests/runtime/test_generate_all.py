"""Several texts that are written at once are those that would be written one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import tokenizers
from mlaot.errors import MlaotError
from mlaot.loading import trace

from ..projects import Build, build_module, load, plain_module

Array = np.ndarray[Any, Any]
TOKENS, CONTEXT, TEXTS, WIDTH = 12, 16, 3, 4
n = mlaot.dim("n")
rng = np.random.default_rng(4)
TABLE = rng.normal(0, 1, (TOKENS, WIDTH)).astype(np.float32)
HEAD = rng.normal(0, 2, (WIDTH, TOKENS)).astype(np.float32)


def attending(*, slides: bool = True, ends: tuple[int, ...] = (), masked: bool = True, trained: bool = False) -> Any:
    """One head over keys and values by their places, which depends on all that was read."""
    text = mlaot.Text(CONTEXT, slides=slides, ends=ends, texts=TEXTS)
    rows = mlaot.Buffer(np.zeros((2, CONTEXT, WIDTH), np.float32), "rows")
    table: Any = mlaot.Parameter("table", TABLE) if trained else TABLE

    def read(tokens: mlaot.i64[n]) -> Any:
        places, seen = text.place + mlaot.arange(tokens.shape[0]), text.seen(tokens)
        x = mlaot.take(table, tokens, axis=0)
        rows.assign(rows.at[:, places].set(np.stack([x[:, ::-1], x])))
        kept = rows[:, :seen]
        scores = x @ kept[0].T
        if masked:
            scores = np.where(mlaot.arange(seen) <= places[:, None], scores, -np.inf)
        return ((mlaot.softmax(scores) @ kept[1]) @ HEAD)[-1]

    return mlaot.model(text=text)(read)


def recurrent() -> Any:
    """A state that is no rows by places, and starts anew with a text."""
    total, text = mlaot.Buffer(np.array(3), "total"), mlaot.Text(CONTEXT, slides=True, texts=TEXTS)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        total.assign(np.where(text.place == 0, 0, total) * 7 + tokens.sum())
        return mlaot.take(TABLE @ HEAD, total % TOKENS, axis=0)

    return follows


def together(nn: Any, prompts: Sequence[Any], **how: Any) -> list[list[Any]]:
    """What follows each prompt."""
    found = defaultdict(list)
    for number, piece in nn.generate_all(prompts, **how):
        found[number].append(piece)
    return [found[number] for number in range(len(prompts))]


def one_by_one(nn: Any, prompts: Sequence[Any], **how: Any) -> list[list[Any]]:
    seed = how.pop("seed", 0)
    return [list(nn.generate(prompt, seed=seed + number, **how)) for number, prompt in enumerate(prompts)]


PROMPTS = [[1], [2, 3, 4, 5, 6, 7], [1], [8, 9], list(range(12)), [0] * 16, [11], [5, 5]]


@pytest.mark.parametrize("model", [attending, recurrent])
@pytest.mark.parametrize(
    "how", [{"temperature": 0, "max_tokens": 40}, {"seed": 5, "max_tokens": 21}, {"max_tokens": 0}]
)
def test_texts_are_those_of_generate(build: Build, model: Any, how: dict[str, Any]) -> None:
    """Of every length, more than are written at once, and behind their context."""
    nn = build(model.__name__, model())
    assert together(nn, PROMPTS, **how) == one_by_one(nn, PROMPTS, **how)
    assert together(nn, [], **how) == []


def test_each_text_ends_by_itself(build: Build) -> None:
    nn = build("ending", attending(slides=False, ends=(3,)))
    prompts = [[token] for token in range(TOKENS)]
    lengths = set()
    for how in ({"seed": 9}, {"seed": 1, "stop": [4, 7]}, {"temperature": 3, "stop": 9, "seed": 8}):
        found = together(nn, prompts, **how)
        assert found == one_by_one(nn, prompts, **how)
        lengths |= {len(answer) for answer in found}
    assert len(lengths) > 4, "some end early"


def test_a_text_is_written_while_others_wait(build: Build) -> None:
    """Three are begun, and the fourth when one of them has ended."""
    nn = build("attending", attending())
    numbers = [number for number, _ in nn.generate_all([[1]] * 5, max_tokens=4, seed=0)]
    assert sorted(numbers[:12]) == [0] * 4 + [1] * 4 + [2] * 4
    assert sorted(numbers[12:]) == [3] * 4 + [4] * 4
    assert numbers[:3] == [0, 1, 2]


def test_letters(build: Build) -> None:
    """Pieces are whole letters, whatever their bytes, and end where a str stops them."""
    said = "ä☃ und ö🦜! " * 3
    tokenizer = tokenizers.raw_bytes()
    answer = np.array([*tokenizer.encode(said), *[0] * 64])
    text = mlaot.Text(48, tokenizer, texts=2)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        following = mlaot.take(answer, text.place + tokens.shape[0] - 1, axis=0)
        return mlaot.one_hot(following, len(tokenizer.tokens), mlaot.f32)

    nn, prompts = build("letters", follows), ["x", "häh", "☃", "four"]
    for how in ({"stop": ("ö", "und")}, {"max_tokens": 20}, {}):
        found = together(nn, prompts, temperature=0, **how)
        assert found == one_by_one(nn, prompts, temperature=0, **how)
        assert all(len(piece) >= 1 for pieces in found for piece in pieces)
    assert "".join(together(nn, ["x", "y"], temperature=0, stop="und")[1]) == "ä☃ "


def test_the_weights_of_its_begin(tmp_path: Path) -> None:
    """What is loaded or written meanwhile changes other texts only, and no text of a Model is touched."""
    library = build_module(attending(trained=True), "replaced", tmp_path, ("base",), frozen=False)
    for nn in (load(library), plain_module(attending(trained=True), "replaced", tmp_path, frozen=False)):
        model, expected = nn.Model(), one_by_one(nn, PROMPTS[:4], temperature=0, max_tokens=9)
        model.generate([4, 4], seed=0)
        found = defaultdict(list)
        for number, piece in model.generate_all(PROMPTS[:4], temperature=0, max_tokens=9):
            found[number].append(piece)
            for i in range(TOKENS):
                model.parameters["table"][i, 0] = 0.0
        assert [found[number] for number in range(4)] == expected
        assert model.buffers["text"].tolist()[:2] == [4, 4] and model.buffers["length"].item() == 2
        assert together(model, PROMPTS[:4], temperature=0, max_tokens=9) != expected


def test_threads_may_each_write_texts(build: Build) -> None:
    nn = build("attending", attending())
    expected = together(nn, PROMPTS, seed=2, max_tokens=12)
    with ThreadPoolExecutor(4) as pool:
        assert all(
            found == expected for found in pool.map(lambda _: together(nn, PROMPTS, seed=2, max_tokens=12), range(8))
        )


@pytest.mark.parametrize(
    ("prompts", "how", "error", "message"),
    [
        ([[1], []], {}, ValueError, r"prompts\[1\]: expected at least one token, since the text has none"),
        ([[1], [2] * 17], {}, ValueError, r"prompts\[1\]: the text has 0 of 16 tokens, so that these 17 do not fit"),
        ([[1, 2]], {"max_tokens": 15}, ValueError, r"prompts\[0\]: with it the text has 2 .* at most 14, got 15"),
        ([[12]], {}, ValueError, r"prompts\[0\]: expected tokens from 0 to 11, got 12"),
        (["x"], {}, TypeError, r"prompts\[0\]: expected tokens, since the module has no tokenizer, got str"),
        ("x", {}, TypeError, "prompts: expected a sequence of prompts, got str"),
        ([[1]], {"top_k": -1}, ValueError, "top_k: expected 0 or more"),
        ([[1]], {"stop": "x"}, TypeError, "stop: expected an int or several, got str"),
    ],
)  # fmt: skip
def test_mistakes(build: Build, prompts: Any, how: dict[str, Any], error: type[Exception], message: str) -> None:
    """All prompts are looked at before anything is written."""
    nn = build("ending", attending(slides=False, ends=(3,)))
    with pytest.raises(error, match=f"generate_all: {message}"):
        nn.generate_all(prompts, **how)


def test_plain_python_writes_the_same(tmp_path: Path) -> None:
    compiled = load(build_module(attending(), "alike", tmp_path, ("base",)))
    plain = plain_module(attending(), "alike", tmp_path)
    for how in ({"temperature": 0, "max_tokens": 20}, {"seed": 2**64 - 2, "max_tokens": 9, "top_k": 3}):
        assert together(plain, PROMPTS, **how) == together(compiled, PROMPTS, **how)


def test_rows_behind_a_text_must_be_masked() -> None:
    with pytest.raises(
        MlaotError, match=r"Text: texts = 3: forward reads rows behind the place of a text.*mask them: "
    ):
        mlaot.passes.run("nn", trace(attending(masked=False)))
    for texts in (0, 1.5, 4096):
        with pytest.raises(MlaotError, match="Text: texts: expected a number of texts from 1 to 1024"):
            mlaot.Text(CONTEXT, texts=texts)  # type: ignore[arg-type]


def test_a_module_of_one_text_has_no_more(build: Build) -> None:
    text = mlaot.Text(CONTEXT)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.take(TABLE @ HEAD, tokens[-1], axis=0)

    assert not hasattr(build("single", follows), "generate_all")
