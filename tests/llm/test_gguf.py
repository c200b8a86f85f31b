"""GGUF files: those of the package gguf hold the weights of the folders they were made of; damaged ones are refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlaot import llm
from mlaot.errors import MlaotError
from mlaot.llm.folder import read_folder
from mlaot.llm.gguf import GgufTokenizer, read_gguf, read_gguf_tokenizer
from mlaot.llm.gguf_file import read_file

from . import test_llm as folders

Array = np.ndarray[Any, Any]
DATA = dict(np.load(Path(__file__).parents[1] / "reference" / "gguf.npz"))
FILES = {key.removeprefix("files/"): array.tobytes() for key, array in DATA.items() if key.startswith("files/")}
F32, Q8_0 = 0, 8


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(entry: Any) -> bytes:
    """The type and the value of an entry."""
    match entry:
        case bytes():
            return entry  # as it is
        case bool():
            return struct.pack("<IB", 7, entry)
        case int():
            return struct.pack("<IQ", 10, entry) if entry >= 0 else struct.pack("<Iq", 11, entry)
        case float():
            return struct.pack("<If", 6, entry)
        case str():
            return struct.pack("<I", 8) + text(entry)
        case np.ndarray():
            return (
                struct.pack("<IIQ", 9, {"f4": 6, "i4": 5, "b1": 7}[entry.dtype.str[1:]], len(entry)) + entry.tobytes()
            )
        case list():
            items = [value(item) for item in entry] or [struct.pack("<I", 8)]
            return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(entry)) + b"".join(i[4:] for i in items)
    raise TypeError(entry)


Tensor = tuple[tuple[int, ...], int, bytes, int | None]  # shape, type, blocks, place unless it is behind the others


def written(
    entries: Mapping[str, Any] | list[tuple[str, Any]],
    tensors: Mapping[str, Tensor] | list[tuple[str, Tensor]] = (),  # type: ignore[assignment]
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A file with these entries and tensors."""
    entries = list(entries.items()) if isinstance(entries, Mapping) else entries
    tensors = list(tensors.items()) if isinstance(tensors, Mapping) else list(tensors)
    first = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    first += b"".join(text(name) + value(entry) for name, entry in entries)
    data = b""
    for name, (shape, kind, raw, place) in tensors:
        where = len(data) if place is None else place
        first += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, where)
        data += raw + bytes(-len(raw) % alignment)
    return first + bytes(-len(first) % alignment) + data


def small() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A llama with one layer of 32 numbers, in a file of which any part can be made wrong."""
    rng = np.random.default_rng(0)
    entries = {"general.architecture": "llama", "llama.context_length": 16, "llama.embedding_length": 32}
    entries |= {"llama.block_count": 1, "llama.feed_forward_length": 64, "llama.attention.head_count": 4}
    entries |= {"llama.attention.head_count_kv": 2, "llama.attention.layer_norm_rms_epsilon": 1e-5}

    def numbers(*shape: int) -> Tensor:
        return shape, F32, rng.normal(size=shape).astype("<f4").tobytes(), None

    tensors = {"token_embd.weight": numbers(5, 32), "output_norm.weight": numbers(32)}
    shapes = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    shapes |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}
    tensors |= {f"blk.0.{name}.weight": numbers(*shape) for name, shape in shapes.items()}
    return entries, tensors | {f"blk.0.{name}_norm.weight": numbers(32) for name in ("attn", "ffn")}


@pytest.mark.parametrize("name", sorted(set(FILES) - {"quantized"}))
def test_a_file_holds_the_weights_of_its_folder(name: str, tmp_path: Path) -> None:
    config, weights = read_folder(folders.write(tmp_path / "folder", *folders.model_of(name)))
    (tmp_path / "model.gguf").write_bytes(FILES[name])
    again, others = read_gguf(tmp_path / "model.gguf")
    np.testing.assert_allclose(again.waves, config.waves, rtol=1e-6)  # divisors are in float32
    assert again.epsilon == float(np.float32(config.epsilon))
    assert again.magnitude == pytest.approx(config.magnitude, rel=1e-7)
    same = replace(again, waves=config.waves, epsilon=config.epsilon, magnitude=config.magnitude)
    assert same == config and set(others) == set(weights)
    for key, array in weights.items():
        np.testing.assert_array_equal(others[key], array, err_msg=key, strict=True)


@pytest.mark.parametrize("name", ["llama", "quantized"])
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """A file is known by its first bytes, whatever it is called."""
    (tmp_path / "model.bin").write_bytes(FILES[name])
    wanted = DATA["quantized/scores"] if name == "quantized" else folders.DATA[f"{name}/scores"]
    folders.check_scores(tmp_path / "model.bin", wanted, tmp_path / "site", context=len(folders.TOKENS))


def test_what_a_file_says_of_tokens(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FILES["llama"])
    found = read_gguf_tokenizer(tmp_path / "a")
    assert (found.model, found.pre, found.begin, found.end, found.unknown) == ("llama", "default", 1, 2, None)
    assert (found.adds_begin, found.adds_end, found.adds_space) == (True, None, False)
    assert found.tokens[:4] == ["<unk>", "<s>", "</s>", "<0x00>"] and found.tokens[-3:] == ["ä", "é", "東"]
    assert found.scores == [-float(i) for i in range(19)] and found.types == [2, 3, 3, *[6] * 10, *[1] * 6]
    entries = {"model": "gpt2", "pre": "qwen2", "tokens": ["a", "b", "ab"], "merges": ["a b"], "add_eos_token": True}
    (tmp_path / "b").write_bytes(written({f"tokenizer.ggml.{name}": entry for name, entry in entries.items()}))
    wanted = GgufTokenizer("gpt2", "qwen2", ["a", "b", "ab"], [], [], ["a b"], None, None, None, None, True, None)
    assert read_gguf_tokenizer(tmp_path / "b") == wanted


def test_entries_of_every_type(tmp_path: Path) -> None:
    packed = {
        "<BB": (0, 200),
        "<BH": (2, 60000),
        "<BI": (4, 2**31),
        "<BQ": (10, 2**63),
        "<Bb": (1, -3),
        "<Bh": (3, -300),
    }
    packed |= {"<Bi": (5, -70000), "<Bq": (11, -(2**40)), "<Bf": (6, 0.5), "<Bd": (12, 0.1), "<B?": (7, True)}
    entries: dict[str, Any] = {
        format: struct.pack("<I", kind) + struct.pack(format, 0, number)[1:]
        for format, (kind, number) in packed.items()
    }
    entries |= {"text": "é", "none": [], "texts": ["a", ""], "floats": np.array([0.5, 1], "<f4")}
    entries |= {"lists": [["a"], ["b", "c"]], "truths": np.array([True, False])}
    (tmp_path / "a").write_bytes(written(entries, version=2))
    found = read_file(tmp_path / "a").entries
    assert all(
        found[format] == number and type(found[format]) is type(number) for format, (_, number) in packed.items()
    )
    assert (found["text"], found["none"], found["texts"]) == ("é", [], ["a", ""])
    assert found["lists"] == [["a"], ["b", "c"]]
    assert found["floats"].tolist() == [0.5, 1.0] and found["truths"].tolist() == [True, False]


def test_another_alignment(tmp_path: Path) -> None:
    entries, tensors = small()
    (tmp_path / "a").write_bytes(written(entries, tensors))
    (tmp_path / "b").write_bytes(written({**entries, "general.alignment": 256}, tensors, alignment=256))
    (_, weights), (_, others) = read_gguf(tmp_path / "a"), read_gguf(tmp_path / "b")
    for name, array in weights.items():
        np.testing.assert_array_equal(others[name], array, err_msg=name)


FACTORS = [("rope.scaling.factor", 2.0), ("rope.scale_linear", 2.0), ("rope.scaling.factor", 0.0)]


@pytest.mark.parametrize(("entry", "factor"), FACTORS)
def test_a_factor_of_waves(entry: str, factor: float, tmp_path: Path) -> None:
    """By its name and by an old one; 0 is none."""
    entries, tensors = small()
    (tmp_path / "a").write_bytes(written(entries, tensors))
    (tmp_path / "b").write_bytes(written({**entries, f"llama.{entry}": factor}, tensors))
    waves, others = (read_gguf(tmp_path / name)[0].waves for name in "ab")
    np.testing.assert_allclose(np.array(waves) / (factor or 1.0), others)


def test_a_window_leaves_yarn_alone(tmp_path: Path) -> None:
    """The original context is that of the model, if the file does not say."""
    entries, tensors = small()
    entries |= {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0, "llama.rope.freq_base": 20.0}
    (tmp_path / "a").write_bytes(written(entries, tensors))
    (tmp_path / "b").write_bytes(written({**entries, "llama.attention.sliding_window": 8}, tensors))
    (config, _), (other, _) = read_gguf(tmp_path / "a"), read_gguf(tmp_path / "b")
    assert (config.context, other.context) == (16, 8) and config.waves == other.waves
    assert config.magnitude == pytest.approx(1 + 0.1 * np.log(4))
    extra = {"llama.rope.scaling.yarn_log_multiplier": 0.5, "llama.rope.scaling.attn_factor": 2.0}
    (tmp_path / "c").write_bytes(written({**entries, **extra}, tensors))
    assert read_gguf(tmp_path / "c")[0].magnitude == pytest.approx(2 * (1 + 0.1 * np.log(4)) / (1 + 0.05 * np.log(4)))


Model = tuple[dict[str, Any], dict[str, Tensor]]


def entries(**found: Any) -> Callable[[Model], bytes]:
    """Change entries; ``__`` is a dot."""
    return lambda model: written({**model[0], **{key.replace("__", "."): new for key, new in found.items()}}, model[1])


def entry(raw: bytes) -> Callable[[Model], bytes]:
    """Have but one entry, a, of this type and value."""
    return lambda model: written([("a", raw)])


def without(name: str) -> Callable[[Model], bytes]:
    """Leave an entry or a tensor out."""
    return lambda model: written(
        {key: entry for key, entry in model[0].items() if key != name},
        {key: tensor for key, tensor in model[1].items() if key != name},
    )


def tensor(
    name: str, shape: tuple[int, ...], kind: int, size: int, place: int | None = None
) -> Callable[[Model], bytes]:
    return lambda model: written(model[0], {**model[1], name: (shape, kind, bytes(size), place)})


MISTAKES: dict[str, tuple[Callable[[Model], bytes], str]] = {
    "version 1": (lambda model: written(*model, version=1), "the version: expected 2 or 3, little-endian, got 1"),
    "big-endian": (
        lambda model: written(*model, version=3 << 24),
        "expected 2 or 3, little-endian, got a big-endian file",
    ),
    "tensors": (
        lambda _: b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0),
        "the count of tensors: expected at most 4,194,304",
    ),
    "entries": (
        lambda _: b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63),
        "the count of entries: expected at most 4,194,304",
    ),
    "cut off": (lambda model: written(*model)[:-33], "the file is cut off, or damaged"),
    "no text": (
        entry(struct.pack("<IQ", 8, 2**63)),
        "a: expected 9,223,372,036,854,775,808 bytes at",
    ),
    "long list": (entry(struct.pack("<IIQ", 9, 8, 2**63)), "a: expected at most 4,194,304, got"),
    "many numbers": (entry(struct.pack("<IIQ", 9, 6, 2**62)), "a: expected 18,446,744,073,709,"),
    "nested": (
        entry(struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9),
        "a: expected a type of entries from 0 to 12, lists in 4 at most, got 9",
    ),
    "type of an entry": (
        entry(struct.pack("<I", 13)),
        "a: expected a type of entries from 0 to 12",
    ),
    "UTF-8": (
        entry(struct.pack("<IQ", 8, 1) + b"\xff"),
        "a: expected a text in UTF-8, got 'utf-8'",
    ),
    "entries twice": (lambda model: written([("a", 1), ("a", 1)]), "a: expected a name of its own, got it twice"),
    "tensors twice": (
        lambda model: written(model[0], [*model[1].items(), *model[1].items()]),
        "token_embd.weight: expected a name of its own, got it twice",
    ),
    "alignment of 0": (entries(general__alignment=0), "general.alignment: expected a power of two, got 0"),
    "alignment of 12": (entries(general__alignment=12), "general.alignment: expected a power of two, got 12"),
    "alignment of text": (entries(general__alignment="32"), "general.alignment: expected a power of two, got '32'"),
    "axes": (
        lambda model: written(model[0], {"a": ((1, 1, 1, 1, 1), F32, bytes(4), None)}),
        "a: the count of axes: expected at most 4, got 5",
    ),
    "no axes": (tensor("a", (), F32, 4), "a: expected rows of whole blocks of 1 numbers, got []"),
    "nothing": (tensor("a", (0, 4), F32, 4), "a: expected rows of whole blocks of 1 numbers, got [0, 4]"),
    "blocks": (tensor("a", (2, 48), Q8_0, 102), "a: expected rows of whole blocks of 32 numbers, got [2, 48]"),
    "odd name": (tensor("a\n" * 99, (4,), 16, 16), r"model.gguf: 'a\na\na"),
    "type": (tensor("a", (4,), 16, 16), "a: expected a type of tensors that is read here, F32, F16, Q4_0, "),
    "huge": (tensor("a", (2**40, 2**40), F32, 16), "a: expected a file of at least 4,835,703,278,458,516,"),
    "place": (tensor("a", (4,), F32, 16, 2**63), "a: expected a file of at least 9,223,372,036,854,"),
    "odd place": (tensor("a", (4,), F32, 16, 2**20 + 4), "a: expected a place that is a multiple of 32 behind"),
    "overlap": (
        tensor("a", (4,), F32, 16, 32),
        "a: expected a place that is a multiple of 32 behind token_embd.weight",
    ),
    "architecture": (
        entries(general__architecture="bert"),
        "general.architecture: expected one of gemma, gpt2, llama, phi3, qwen2, qwen3, got 'bert'",
    ),
    "no architecture": (without("general.architecture"), "general.architecture: expected str, got nothing"),
    "split": (entries(split__count=3), "split.count: expected a whole model in one file; llama-gguf-split --merge"),
    "kind": (entries(llama__block_count=1.0), "llama.block_count: expected int, got 1.0"),
    "truth": (entries(llama__block_count=True), "llama.block_count: expected int, got True"),
    "by layer": (
        entries(llama__attention__head_count_kv=np.array([2], "<i4")),
        "llama.attention.head_count_kv: expected int, got array([2], dtype=int32)",
    ),
    "no epsilon": (without("llama.attention.layer_norm_rms_epsilon"), "epsilon: expected float, got nothing"),
    "layers": (entries(llama__block_count=2**63), "expected a number of layers from 1 to 10,000, got 9,223,372,036,"),
    "size": (entries(llama__attention__key_length=2**62), "numbers of a head from 1 to 65,536, got 4,611,686,"),
    "values": (entries(llama__attention__value_length=4), "llama.attention.value_length: expected 8, as keys, got 4"),
    "heads": (entries(llama__attention__head_count=0), "expected a number of heads from 1 to 2,147,483,647, got 0"),
    "experts": (entries(llama__expert_count=8), "llama.expert_count: expected a model without experts, got 8"),
    "turned": (
        entries(llama__rope__dimension_count=4),
        "llama.rope.dimension_count: expected 8, all numbers of a head, got 4",
    ),
    "base": (entries(llama__rope__freq_base=0.0), "expected finite numbers, got 9.99"),
    "waves": (
        entries(llama__rope__scaling__type="dynamic"),
        "llama.rope.scaling.type: expected one of none, linear, longrope, yarn, got 'dynamic'",
    ),
    "longrope": (
        entries(llama__rope__scaling__type="longrope"),
        "llama.rope.scaling.type: expected a tensor rope_factors_short.weight with longrope, got 'longrope'",
    ),
    "divisors": (
        tensor("rope_freqs.weight", (5,), F32, 20),
        "rope_freqs.weight: expected 4 numbers, one for each pair of a head that turns, got [5]",
    ),
    "divisors of 0": (tensor("rope_freqs.weight", (4,), F32, 16), "got 9.999999747378752e-06 for epsilon, inf to inf"),
    "no embedding": (without("token_embd.weight"), "no tensor token_embd.weight, in which each token has a row"),
    "no weight": (
        without("blk.0.ffn_up.weight"),
        "blk.0.ffn_up.weight: expected a tensor [64, 32], as the entries say, got none",
    ),
    "shape": (
        tensor("blk.0.ffn_up.weight", (32, 64), F32, 8192),
        "blk.0.ffn_up.weight: expected a tensor [64, 32], as the entries say, got [32, 64]",
    ),
    "others": (tensor("blk.0.attn_q_norm.weight", (8,), F32, 32), "the tensors of a llama only, got blk.0.attn_q_norm"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_wrong_with_a_file_is_said(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(MISTAKES[name][0](small()))
    with pytest.raises(MlaotError) as raised:
        llm.load(file)
    assert str(file) in str(raised.value) and MISTAKES[name][1] in str(raised.value)


TOKENS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"model": "llama"}, "tokenizer.ggml.tokens: expected a text for each token, got None"),
    "model": ({"tokens": ["a"]}, "tokenizer.ggml.model: expected str, got nothing"),
    "lists": ({"model": "gpt2", "tokens": [["a"]]}, "tokenizer.ggml.tokens: expected a list of texts, got [['a']]"),
    "scores": (
        {"model": "llama", "tokens": ["a"], "scores": np.zeros(2, "<f4")},
        "tokenizer.ggml.scores: expected 1 numbers, one for each token",
    ),
    "types": (
        {"model": "llama", "tokens": ["a"], "token_type": np.zeros(1, "<f4")},
        "tokenizer.ggml.token_type: expected numbers of another kind",
    ),
    "end": (
        {"model": "llama", "tokens": ["a"], "eos_token_id": 1},
        "tokenizer.ggml.eos_token_id: expected one of 1 tokens, got 1",
    ),
}


@pytest.mark.parametrize("name", TOKENS)
def test_what_is_wrong_with_tokens_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(written({f"tokenizer.ggml.{key}": entry for key, entry in TOKENS[name][0].items()}))
    with pytest.raises(MlaotError) as raised:
        read_gguf_tokenizer(tmp_path / "a")
    assert TOKENS[name][1] in str(raised.value)


def survives(data: bytes, file: Path) -> None:
    """A file is read, or refused in one line."""
    file.write_bytes(data)
    for read in (read_gguf, read_gguf_tokenizer):
        try:
            read(file)
        except MlaotError as error:
            assert str(file) in str(error) and "\n" not in str(error)


def test_files_cut_off_anywhere(tmp_path: Path) -> None:
    whole = FILES["llama"]
    first = whole.index(b"output_norm.weight")
    for end in [*range(0, first, 29), *range(first, len(whole) - 32, 499)]:
        (tmp_path / "a").write_bytes(whole[:end])
        with pytest.raises(MlaotError, match=r"cut off, or damaged|cannot read"):
            read_gguf(tmp_path / "a")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(FILES)),
    flips=st.lists(st.tuples(st.integers(0, 2500), st.integers(0, 255)), max_size=4),
    end=st.integers(0, 2**14),
)
def test_damaged_files_are_read_or_refused(name: str, flips: list[tuple[int, int]], end: int, tmp_path: Path) -> None:
    data = bytearray(FILES[name])
    for place, byte in flips:
        data[place % len(data)] = byte
    survives(bytes(data[:end] if end < len(data) // 4 else data), tmp_path / "a")
