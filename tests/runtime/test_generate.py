"""Texts go on as the scores say: an oracle in float64 of which tokens may follow, and how often each does."""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn as layers
from mlaot.errors import MlaotError
from mlaot.loading import trace

from ..projects import Build, build_module, load, plain_module

Array = np.ndarray[Any, Any]
TOKENS, CONTEXT = 12, 10
TABLE = np.random.default_rng(3).normal(0, 2, (TOKENS, TOKENS)).astype(np.float32)
TABLE[5] = TABLE[5][::-1].round()  # some tokens are equally likely
n, batch, seen_ = mlaot.dim("n"), mlaot.dim("batch"), mlaot.dim("seen")


def declared(*, slides: bool = False, ends: tuple[int, ...] = (), table: Array = TABLE) -> Any:
    """What follows depends on the last token alone."""

    @mlaot.model(text=mlaot.Text(CONTEXT, slides=slides, ends=ends))
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.take(table, tokens[-1], axis=0)

    return follows


@pytest.fixture(scope="module")
def nn(build: Build) -> ModuleType:
    return build("follows", declared())


def likely(scores: Array, text: list[int], how: dict[str, Any]) -> Array:
    """The probability of each token, as the options say."""
    scores = scores.astype(np.float64)
    penalty = how.get("repetition_penalty", 1.0)
    for token in set(text):
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    weights = np.exp((scores - scores.max()) / how.get("temperature", 1.0))
    order = np.argsort(-scores, kind="stable")
    kept = order[: how.get("top_k", 0) or len(order)]
    shares = weights[kept] / weights[kept].sum()
    before = np.cumsum(shares) - shares
    kept = kept[before < how.get("top_p", 1.0)]
    kept = kept[weights[kept] >= how.get("min_p", 0.0) * weights.max()]
    found = np.zeros(len(scores))
    found[kept] = weights[kept] / weights[kept].sum()
    return found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 4},
    {"top_p": 0.5},
    {"top_p": 0.9, "temperature": 2.0},
    {"top_k": 6, "top_p": 0.8},
    {"min_p": 0.2},
    {"min_p": 1.0},
    {"top_p": 1e-9},
    {"repetition_penalty": 2.0},
    {"repetition_penalty": 0.5, "top_k": 5, "min_p": 0.05},
]


@pytest.mark.parametrize("how", OPTIONS, ids=lambda how: "_".join(f"{k}_{v}" for k, v in how.items()) or "plain")
def test_how_often_each_token_follows(nn: ModuleType, how: dict[str, Any]) -> None:
    draws = 4000 if nn.info()["isa"] != "python" else 200
    for text in ([1], [7, 5], [0, 3, 3]):
        expected = likely(TABLE[text[-1]], text, how)
        counts = Counter(token for seed in range(draws) for token in nn.generate(text, max_tokens=1, seed=seed, **how))
        found = np.array([counts[token] for token in range(TOKENS)]) / draws
        assert set(np.flatnonzero(found)) <= set(np.flatnonzero(expected))
        spread = np.sqrt(expected * (1 - expected) / draws)
        assert (np.abs(found - expected) <= 5 * spread + 1e-9).all(), (how, found, expected)


def test_all_modules_draw_alike(tmp_path: Path) -> None:
    """In plain Python the same tokens follow, of scores some of which are equal, infinite or very small."""
    rng = np.random.default_rng(5)
    table = rng.normal(0, 3, (97, 97)).astype(np.float32)
    table[::3] = table[::3].round()
    table[:, ::11] = -np.inf
    table[4] = 1e-42
    compiled = load(build_module(declared(table=table), "many", tmp_path, ("base",)))
    plain = plain_module(declared(table=table), "many", tmp_path)
    more = [{"top_k": k} for k in (2, 3, 8, 31, 96, 97, 500)]
    more += [{"temperature": 1e-30}, {"temperature": 1e30}, {"repetition_penalty": 1e30}, {"min_p": 1e-300}]
    for how in (*OPTIONS, *more):
        for seed in (*range(12), 2**64 - 1):
            prompt = [int(token) for token in rng.integers(0, 97, 3)]
            expected = list(compiled.generate(prompt, seed=seed, **how))
            assert list(plain.generate(prompt, seed=seed, **how)) == expected, (how, seed)


def seed_for(bits: int) -> int:
    """The seed whose first random number this is: SplitMix64 backwards."""
    limit = 1 << 64
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        bits ^= bits >> shift ^ bits >> 2 * shift
        bits = bits * pow(factor, -1, limit) % limit
    return (bits - 0x9E3779B97F4A7C15) % limit


def test_all_modules_weigh_alike(tmp_path: Path) -> None:
    """To the last bit: what is drawn by the last number that a token has, and by the first that it has not."""
    table = np.array([[0, 1], [0, 1]], np.float32)
    compiled = load(build_module(declared(table=table), "two", tmp_path, ("base",)))
    plain = plain_module(declared(table=table), "two", tmp_path)
    for temperature in np.random.default_rng(1).uniform(0.05, 3, 200).tolist():
        weight = plain._weight(1.4426950408889634 / temperature)
        for number, token in ((weight - 1, 0), (weight, 1)):
            seed = seed_for(-((-number << 64) // (weight + plain._WHOLE)))
            for module in (compiled, plain):
                assert list(module.generate([0], max_tokens=1, temperature=temperature, seed=seed)) == [token]


CALLS = """
generate([1], stop=None); generate([1], stop={}); generate([1], stop=True, seed=1); generate([1], stop="x")
generate([1], stop=[1, "x"]); generate([1], stop=2**70); generate([1], stop=[2**70]); generate([1], stop=-(2**63))
generate([1], stop=[1.5]); generate(range(3), seed=1); generate({}); generate(None)
generate(b"abc"); generate(np.array([1, 2]), seed=1); generate(np.array(1)); generate([True], seed=1)
generate([2**70]); generate([1], top_k=2**63); generate([1], seed=2**64); generate([1], temperature=True, seed=1)
generate([1], max_tokens=True, seed=1); generate([1], max_tokens=None, seed=3); generate([1], temperature=None)
generate([1], seed=1.5); generate([1], max_tokens=2**62); generate([1] * 10); generate([1], 2, 3); generate(x=1)
generate(prompt=[1], seed=2); rewind(True); rewind(-1); rewind(1); rewind(1.5); rewind(None); rewind(2**70)
forward([1, 2]); forward([3] * 9); generate([], max_tokens=3, seed=2); rewind(2); forward([1]); generate([4], seed=1)
forward([1]); rewind(4); forward([1]); forward([])
"""


def test_all_modules_refuse_alike(tmp_path: Path) -> None:
    """Word for word; the calls are of one text."""
    modules = [load(build_module(declared(), "said", tmp_path, ("base",))), plain_module(declared(), "said", tmp_path)]
    texts = [module.Model() for module in modules]

    def answer(call: str, text: Any) -> Any:
        try:
            found = eval(f"text.{call}", {"text": text, "np": np})
            return found if found is None else np.asarray([*found]).tolist()
        except Exception as error:
            return type(error), str(error)

    calls = [call.strip() for call in CALLS.replace("\n", ";").split(";") if call.strip()]
    for call in calls:
        compiled, plain = (answer(call, text) for text in texts)
        assert plain == compiled, call
    assert bytes(texts[0].buffers["text"]) == bytes(texts[1].buffers["text"])


def test_temperature_zero_takes_the_first_of_the_likeliest(nn: ModuleType) -> None:
    for token in range(TOKENS):
        assert list(nn.generate([token], max_tokens=1, temperature=0)) == [int(TABLE[token].argmax())]
    text, found = [4], list(nn.generate([4], temperature=0))
    while len(text) < CONTEXT:
        text.append(int(TABLE[text[-1]].argmax()))
    assert text == [4, *found], "it ends with the context"


@pytest.mark.parametrize("count", [64, 200])
def test_the_likeliest_of_many(build: Build, count: int) -> None:
    """Wherever it stands, of equals the first, by the least difference; and a score that is no number is found."""
    rng = np.random.default_rng(count)
    table = rng.uniform(0, 1e-3, (count, count)).astype(np.float32)
    for token in range(count):
        table[token, [token, rng.integers(count)]] = np.nextafter(table[token].max(), np.float32(2))
    table[3, count // 2] = np.nan
    nn = build(f"likeliest{count}", declared(table=table))
    for token in set(range(count)) - {3}:
        assert list(nn.generate([token], max_tokens=1, temperature=0)) == [int(table[token].argmax())]
    with pytest.raises(ValueError, match="the scores are not all numbers"):
        list(nn.generate([3], max_tokens=1, temperature=0))


def test_a_seed_decides(nn: ModuleType) -> None:
    """The numbers are those of every platform."""
    assert list(nn.generate([1, 2], seed=7)) == list(nn.generate([1, 2], seed=7)) == SEVENTH
    answers = {tuple(nn.generate([1, 2], seed=seed)) for seed in range(20)}
    assert len(answers) > 15
    assert len({tuple(nn.generate([1, 2])) for _ in range(20)}) > 15, "without a seed each is another"
    text = nn.Model()
    pieces = list(text.generate([1, 2], max_tokens=3, seed=7))
    assert pieces == SEVENTH[:3]


SEVENTH = [2, 1, 9, 1, 9, 1, 9, 1]


def test_a_model_is_a_text_and_the_module_begins_new_ones(nn: ModuleType) -> None:
    text = nn.Model()
    first = list(text.generate([3], max_tokens=2, temperature=0))
    rest = list(text.generate([], max_tokens=3, temperature=0))
    assert [*first, *rest] == list(nn.generate([3], max_tokens=5, temperature=0))
    assert text.buffers["text"].tolist()[:6] == [3, *first, *rest]
    assert text.buffers["length"].item() == 6
    for other in (copy.copy(text), copy.deepcopy(text)):
        assert list(other.generate([9], max_tokens=1, seed=1)) == list(nn.generate([9], max_tokens=1, seed=1))
    assert text.buffers["length"].item() == 6
    text.rewind(1)
    assert list(text.generate([], max_tokens=5, temperature=0)) == [*first, *rest]


def test_forward_reads_the_same_text(nn: ModuleType) -> None:
    text = nn.Model()
    np.testing.assert_array_equal(np.asarray(text.forward([1, 2, 3])), TABLE[3])
    assert list(text.generate([], max_tokens=1, temperature=0)) == [int(TABLE[3].argmax())]
    with pytest.raises(
        ValueError, match=r"forward: tokens: 1 of the 4 tokens of the text are yet to be read.* rewind\(3\)"
    ):
        text.forward([0])
    text.rewind(3)
    with pytest.raises(ValueError, match=r"forward: tokens: expected no more .* the 3 .* of 10 at most, got 8; rewind"):
        text.forward([0] * 8)
    text.rewind(0)
    np.testing.assert_array_equal(np.asarray(text.forward([0] * 10)), TABLE[0])
    with pytest.raises(ValueError, match="fit behind the 10 "):
        text.forward([1])


def test_an_answer_ends(build: Build) -> None:
    """At a token that ends texts, which is no part of it, or at one that the caller gives."""
    one_by_one = np.roll(np.eye(TOKENS, dtype=np.float32), 1, axis=1)
    nn = build("ends", declared(ends=(11, 8), table=one_by_one))
    text = nn.Model()
    assert list(text.generate([4], temperature=0)) == [5, 6, 7]
    assert text.buffers["length"].item() == 4
    assert list(nn.generate([4], temperature=0, stop=5)) == []
    assert list(nn.generate([4], temperature=0, stop=[99, 6])) == [5]
    assert list(nn.generate([4], max_tokens=0)) == []


def test_a_text_that_slides(build: Build) -> None:
    """Behind its context the latter half of it is read anew."""
    nn = build("slides", declared(slides=True))
    text, expected = nn.Model(), [4]
    pieces = text.generate([4], temperature=0)
    for _ in range(40):
        expected.append(int(TABLE[expected[-1]].argmax()))
        assert next(pieces) == expected[-1]
    length = text.buffers["length"].item()
    assert CONTEXT // 2 < length <= CONTEXT
    assert text.buffers["text"].tolist()[:length] == expected[-length:]
    long = [int(token) for token in np.random.default_rng(0).integers(0, TOKENS, 37)]
    assert list(nn.generate(long, max_tokens=1, temperature=0)) == [int(TABLE[long[-1]].argmax())]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_tokens": 9},
            r"prompt: with it the text has 2 of 10 tokens, so that max_tokens can be at most 8, got 9",
        ),
        ({"prompt": [0] * 11}, "prompt: the text has 0 of 10 tokens, so that these 11 do not fit"),
        ({"prompt": []}, "prompt: expected at least one token"),
        ({"prompt": [12]}, "prompt: expected tokens from 0 to 11, got 12"),
        ({"prompt": [-1]}, "prompt: expected tokens from 0 to 11, got -1"),
        ({"max_tokens": -1}, "max_tokens: expected 0 or more"),
        ({"temperature": -0.1}, "temperature: expected 0 or more"),
        ({"temperature": float("nan")}, "temperature: expected 0 or more"),
        ({"temperature": float("inf")}, "temperature: expected 0 or more"),
        ({"top_k": -1}, "top_k: expected 0 or more"),
        ({"top_p": 0}, "top_p: expected a share over 0"),
        ({"top_p": 1.1}, "top_p: expected a share over 0"),
        ({"min_p": -1}, "min_p: expected a share from 0 to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty: expected over 0"),
        ({"seed": -1}, "seed: expected uint64, got -1"),
    ],
)
def test_values_that_make_no_sense(nn: ModuleType, options: dict[str, Any], message: str) -> None:
    text = nn.Model()
    with pytest.raises(ValueError, match=f"generate: {message}"):
        text.generate(**{"prompt": [1, 2], **options})
    assert text.buffers["length"].item() == 0, "nothing was appended"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda nn: nn.generate(), r"generate\(\) is missing argument 'prompt'"),
        (lambda nn: nn.generate([1], 5), r"generate\(\) takes 1 positional argument, got 2"),
        (lambda nn: nn.generate([1], prompt=[2]), r"generate\(\) got more than one argument 'prompt'"),
        (lambda nn: nn.generate([1], tokens=5), r"generate\(\) got an unexpected keyword argument 'tokens'"),
        (
            lambda nn: nn.generate("text"),
            "generate: prompt: expected tokens, since the module has no tokenizer, got str",
        ),
        (lambda nn: nn.generate(5), "generate: prompt: expected a sequence of tokens, got int"),
        (lambda nn: nn.generate([1.5]), "generate: prompt: expected int64, got float"),
        (lambda nn: nn.generate([1], temperature="hot"), "generate: temperature: expected float64, got str"),
        (lambda nn: nn.generate([1], stop="x"), "generate: stop: expected an int or several, got str"),
        (lambda nn: nn.Model().rewind("x"), "rewind: length: expected int64, got str"),
    ],
)
def test_arguments_of_another_kind(nn: ModuleType, call: Callable[[ModuleType], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(nn)


def test_a_text_that_went_on_elsewhere(nn: ModuleType) -> None:
    """Two answers to one text are no text: the elder ends with an error."""
    text = nn.Model()
    elder = text.generate([1], seed=0)
    next(elder)
    younger = text.generate([2], seed=0)
    with pytest.raises(ValueError, match="the text has been changed since the last piece"):
        next(elder)
    next(younger)
    text.rewind(1)
    with pytest.raises(ValueError, match="the text has been changed"):
        next(younger)
    with pytest.raises(ValueError, match="rewind: length: expected 0 to 1, as many tokens as the text has, got 2"):
        text.rewind(2)
    text.rewind(0)
    with pytest.raises(ValueError, match="expected at least one token"):
        text.generate([])


@pytest.mark.parametrize(("buffer", "value"), [("place", 7), ("place", -1), ("length", 99), ("text", 12), ("text", -5)])
def test_buffers_that_describe_no_text(nn: ModuleType, buffer: str, value: int) -> None:
    """They are anybody's to write, and nothing outside them is read for it."""
    text = nn.Model()
    pieces = text.generate([1, 2], seed=0)
    text.buffers[buffer][...] = value
    for call in (lambda: next(pieces), lambda: text.generate([3])):
        with pytest.raises(ValueError, match=r"do not describe a text; rewind\(0\) begins a new one"):
            call()
    text.rewind(0)
    assert len(list(text.generate([3], max_tokens=4))) == 4


def test_a_memory_without_places(build: Build) -> None:
    """A recurrent network goes back by reading the text from its begin."""
    total, text = mlaot.Buffer(np.array(0), "total"), mlaot.Text(CONTEXT, slides=True)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        total.assign(np.where(text.place == 0, 0, total) + tokens.sum())
        return mlaot.one_hot((5 * total + 1) % TOKENS, TOKENS, mlaot.f32)

    nn = build("recurrent", follows)
    model = nn.Model()
    model.forward([1, 5])
    first = list(model.generate([], max_tokens=3, temperature=0))
    assert first == list(nn.generate([1, 5], max_tokens=3, temperature=0)) == [7, 6, 0]
    whole = list(model.generate([], max_tokens=2, temperature=0))
    model.rewind(5)
    assert model.buffers["place"].item() == 0
    again = nn.generate([1, 5, *first], max_tokens=1, temperature=0)
    assert list(model.generate([], max_tokens=1, temperature=0)) == list(again) and len(whole) == 2


def looks_back() -> Any:
    """What follows depends on all tokens that were read, by their places, and on how many there are."""
    rows, text = mlaot.Buffer(np.zeros((2, CONTEXT, 3), np.float32), "rows"), mlaot.Text(CONTEXT, slides=True)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        places, seen = text.place + mlaot.arange(tokens.shape[0]), text.seen(tokens)
        rows.assign(rows.at[:, places].set(mlaot.take(ROWS, tokens, axis=1)))
        kept = rows[:, :seen]
        weights = mlaot.softmax(kept[0] @ kept[1, -1])
        return (weights[:, None] * kept[1]).sum(axis=0) @ HEAD + 0.1 * seen

    return follows


ROWS = np.random.default_rng(8).normal(0, 1, (2, TOKENS, 3)).astype(np.float32)
HEAD = np.random.default_rng(9).normal(0, 2, (3, TOKENS)).astype(np.float32)


def looked_back(text: list[int]) -> Array:
    keys, values = ROWS[:, text].astype(np.float64)
    weights = np.exp(keys @ values[-1])
    return (weights / weights.sum()) @ values @ HEAD + 0.1 * len(text)


@pytest.mark.parametrize("parts", [(1, 1, 1, 1, 1), (4, 1, 5), (10,), (2, 3, 0, 4)])
def test_what_has_been_seen(build: Build, parts: tuple[int, ...]) -> None:
    """An extent that grows with the text: nothing behind it is read."""
    nn, tokens = build("looks_back", looks_back()), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    model, end = nn.Model(), 0
    if nn.info()["isa"] != "python":
        np.asarray(model.buffers["rows"])[:] = np.nan
    for part in parts:
        end += part
        if part:
            scores = model.forward(tokens[end - part : end])
            np.testing.assert_allclose(np.asarray(scores), looked_back(tokens[:end]), rtol=2e-5)
    model.rewind(1)
    np.testing.assert_allclose(np.asarray(model.forward([7])), looked_back([3, 7]), rtol=2e-5)
    with pytest.raises(ValueError, match="expected no more tokens than fit behind the 2 of the text"):
        model.forward(tokens[:9])


def test_generate_sees_what_it_has_written(build: Build) -> None:
    nn, text = build("looks_back", looks_back()), [3]
    for token in nn.generate([3], temperature=0, max_tokens=30):
        assert token == int(looked_back(text).argmax())
        text.append(token)
        text = text[-(CONTEXT // 2) - 1 :] if len(text) == CONTEXT + 1 else text


def test_only_the_entry_that_reads_sees_a_text() -> None:
    text = mlaot.Text(CONTEXT)

    @mlaot.model(text=text)
    def follows(tokens: mlaot.i64[n]) -> Any:
        return mlaot.take(TABLE, tokens[-1], axis=0)

    @follows.entry
    def other(x: mlaot.f32[batch]) -> Any:
        return mlaot.arange(text.seen(x)) + x.sum()

    with pytest.raises(
        MlaotError, match=r"Text.seen: expected a call in forward, which reads the text, got one in other"
    ):
        trace(follows)


def test_the_build_says_what_a_text_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_module(declared(), "sized", tmp_path / "site", ("base",), golden=True)
    assert "sized.nn: each text, of at most 10 tokens, takes 56 bytes\n" in capsys.readouterr().out


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_scores_that_are_no_numbers(build: Build, score: float) -> None:
    table = TABLE.copy()
    table[2, 5] = score
    nn = build(f"broken{np.isnan(score):d}", declared(table=table))
    with pytest.raises(ValueError, match="the scores are not all numbers"):
        list(nn.generate([2], max_tokens=1))


def test_threads_ask_for_the_next_token(nn: ModuleType) -> None:
    """Each token comes once; a thread that is too early is told so."""
    text = nn.Model()

    def ask(pieces: Iterator[int]) -> list[int]:
        found = []
        while True:
            try:
                found.append(next(pieces))
            except StopIteration:
                return found
            except ValueError as error:
                assert "another thread" in str(error)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for _ in range(50):
                text.rewind(0)
                pieces = text.generate([1], seed=3)
                parts = list(pool.map(ask, [pieces] * 4))
                assert sorted(token for part in parts for token in part) == sorted(nn.generate([1], seed=3))
    finally:
        sys.setswitchinterval(0.005)


def test_memory_comes_back(nn: ModuleType) -> None:
    """An iterator keeps its text alive, and neither keeps the other for ever."""
    pieces = nn.Model().generate([1], seed=0)
    assert iter(pieces) is pieces and len(list(pieces)) == CONTEXT - 1
    assert list(pieces) == []
    with pytest.raises(TypeError, match="cannot create"):
        type(pieces)()


class TestDeclarations:
    """What reads no text is refused when the model is traced."""

    def test_a_function_of_other_arrays(self) -> None:
        @mlaot.model(text=mlaot.Text(8))
        def wrong(x: mlaot.f32[n]) -> Any:
            return x[:1]

        with pytest.raises(
            MlaotError, match=r"forward reads a text: expected it to take tokens mlaot.i64\[n\] .* got f32"
        ):
            trace(wrong)

    def test_a_function_of_two_arrays(self) -> None:
        @mlaot.model(text=mlaot.Text(8))
        def wrong(x: mlaot.i64[n], y: mlaot.i64[n]) -> Any:
            return mlaot.take(TABLE, x[-1] + y[-1], axis=0)

        with pytest.raises(
            MlaotError, match=r"forward reads a text: expected it to take tokens i64\[n\] and nothing else"
        ):
            trace(wrong)

    def test_scores_of_all_tokens(self) -> None:
        @mlaot.model(text=mlaot.Text(8))
        def wrong(x: mlaot.i64[n]) -> Any:
            return mlaot.take(TABLE, x, axis=0)

        with pytest.raises(MlaotError, match=r"expected it to return scores f32\[tokens\] .*, got f32\[n,12\]"):
            trace(wrong)

    def test_an_entry_that_there_is_not(self) -> None:
        @mlaot.model(text=mlaot.Text(8, entry="read"))
        def net(x: mlaot.f32[3]) -> Any:
            return x

        with pytest.raises(MlaotError, match="Text: entry: the model has forward, got 'read'"):
            trace(net)

    def test_a_dim_that_has_a_meaning(self) -> None:
        @mlaot.model(text=mlaot.Text(8))
        def wrong(x: mlaot.i64[seen_]) -> Any:
            return mlaot.take(TABLE, x[-1], axis=0)

        with pytest.raises(MlaotError, match="with a dim of another name than 'seen'"):
            trace(wrong)

    def test_tokens_that_must_be_several(self) -> None:
        @mlaot.model(text=mlaot.Text(8))
        def wrong(x: mlaot.i64[n]) -> Any:
            return mlaot.take(TABLE, x[-2], axis=0)

        with pytest.raises(MlaotError, match=r"read as few as 1 token and as many as 8, got an extent .*: n"):
            trace(wrong)

    def test_ends_that_are_no_tokens(self) -> None:
        with pytest.raises(MlaotError, match=r"Text: ends: expected tokens from 0 to 11, got \[12\]"):
            trace(declared(ends=(12,)))

    @pytest.mark.parametrize("context", [1, 2**31, "long"])
    def test_a_context_of_no_tokens(self, context: Any) -> None:
        with pytest.raises(MlaotError, match="Text: context: expected a number of tokens from 2"):
            mlaot.Text(context)


def test_a_model_that_trains_and_an_entry_that_reads(build: Build, tmp_path: Path) -> None:
    """Training changes what follows, and the text stays."""

    class Net(layers.Module):
        def __init__(self) -> None:
            self.table = layers.Embedding(TOKENS, TOKENS)

    net = Net()

    def loss(scores: Any, target: mlaot.i64[batch]) -> Any:
        return layers.functional.cross_entropy(scores, target)

    @mlaot.model(parameters=net, loss=loss, optimizer=mlaot.optim.SGD(lr=5.0), text=mlaot.Text(CONTEXT, entry="read"))
    def forward(tokens: mlaot.i64[batch]) -> Any:
        return net.table(tokens)

    @forward.entry
    def read(tokens: mlaot.i64[n]) -> Any:
        return net.table(tokens[-1:])[0]

    nn = build("trains", forward)
    model, before = nn.Model(), list(range(TOKENS))
    after = before[1:] + before[:1]
    for _ in range(50):
        model.train_step(before, after)
    assert list(model.generate([3], max_tokens=6, temperature=0)) == [4, 5, 6, 7, 8, 9]
    path = tmp_path / "state.safetensors"
    model.save(str(path))
    other = nn.Model()
    other.load(str(path))
    assert list(other.generate([], max_tokens=2, temperature=0)) == [10, 11]

    def in_steps() -> None:
        model.set_input(after, before)
        model.forward()
        model.backward()
        model.update(0.1)

    changes = (lambda: model.train_step(after, before), lambda: model.fit(after, before, epochs=20), in_steps)
    for change in changes:
        model.rewind(1)
        assert model.read([4]).shape == (TOKENS,)
        change()
        with pytest.raises(
            ValueError, match=r"2 of the 2 tokens of the text are yet to be read, since .* the weights are"
        ):
            model.read([4])
        next(model.generate([], max_tokens=1, temperature=0))
        assert model.buffers["place"].item() == 2


def test_eager_calls_see_what_they_read() -> None:
    model, tokens = looks_back(), [3, 1, 4, 1, 5]
    for part in ([3, 1], [4], [1, 5]):
        scores = model(np.array(part))
    np.testing.assert_allclose(np.asarray(scores), looked_back(tokens), rtol=2e-5)


def test_eager_calls_note_what_they_read() -> None:
    model = declared()
    np.testing.assert_array_equal(np.asarray(model(np.array([1, 2]))), TABLE[2])
    model(np.array([3]))
    assert int(model.text.place.array) == int(model.text.length.array) == 3
    assert model.text.tokens.array[:3].tolist() == [1, 2, 3]
