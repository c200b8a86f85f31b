"""Read GGUF files, the format of llama.cpp: GPT-2, Llama and similar models, quantized or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.llm import rotary
from mlaot.llm.decoder import MOST, Config
from mlaot.llm.facts import Facts, named
from mlaot.llm.gguf_file import Tensor, read_file

Array = np.ndarray[Any, Any]
Tensors = dict[str, Tensor]
Parts = tuple[str, ...]
ARCHITECTURES = ("gemma", "gpt2", "llama", "phi3", "qwen2", "qwen3")
WHOLE = {"embedding": "token_embd", "positions": "position_embd", "norm": "output_norm", "head": "output"}
PARTS = {
    **{"norm1": "attn_norm", "norm2": "ffn_norm", "query_norm": "attn_q_norm", "key_norm": "attn_k_norm"},
    **{"query": "attn_q", "key": "attn_k", "value": "attn_v", "attended": "attn_output"},
    **{"gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"},
}
ATTENTION: Parts = ("query", "key", "value")
GATED: Parts = ("gate", "up")
FUSED = {ATTENTION: "attn_qkv", GATED: "ffn_up"}  # parts that are the rows of one tensor, in some files
FREQUENCIES = "rope_freqs.weight"  # divide the waves, as the next do
SHORT, LONG = "rope_factors_short.weight", "rope_factors_long.weight"  # for texts within the original context, or not
SCALED = ("none", "linear", "longrope", "yarn")


@dataclass(frozen=True)
class GgufTokenizer:
    """The entries of a file about its tokens. A missing entry is empty, or None.

    ``model`` is "llama" for pieces with scores, or "gpt2" for merges of bytes, with the pre-tokenizer ``pre``.
    ``types`` are 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    """

    model: str
    pre: str
    tokens: list[str]
    scores: list[float]
    types: list[int]
    merges: list[str]
    begin: int | None
    end: int | None
    unknown: int | None
    adds_begin: bool | None
    adds_end: bool | None
    adds_space: bool | None


def read_gguf(path: Path) -> tuple[Config, dict[str, Array]]:
    """Return the configuration of a file's model, and its weights in float32 by the names of ``Config.shapes``."""
    file = read_file(path)
    facts, tensors = Facts(path, file.entries), file.tensors
    kind = facts.take("general.architecture", str)
    facts.refuse("general.architecture", f"one of {', '.join(ARCHITECTURES)}", unless=kind in ARCHITECTURES)
    parts = facts.take("split.count", int, default=1)
    facts.refuse("split.count", "a whole model in one file; llama-gguf-split --merge makes one", unless=parts <= 1)
    config = _config(facts.behind(f"{kind}."), tensors, kind)
    if problem := config.problem():
        raise MlaotError(f"{path}: {problem}")
    fused = [ATTENTION] * ("blk.0.attn_qkv.weight" in tensors) + [GATED] * (kind == "phi3")
    shapes = config.shapes()
    places = {name: _tensor(name, fused) for name in shapes}
    if unread := sorted(set(tensors) - {*places.values(), FREQUENCIES, SHORT, LONG}):
        names = ", ".join(map(named, unread[:3])) + (", ..." if len(unread) > 3 else "")
        raise MlaotError(f"{path}: expected the tensors of a {kind} only, got {names}")
    weights = dict[str, Array]()
    for name, tensor in places.items():
        rows, whole = config.rows(name, shapes[name], fused)
        found = tensors.get(tensor)
        if found is None or found.shape != whole:
            got = "none" if found is None else [*found.shape]
            raise MlaotError(f"{path}: {tensor}: expected a tensor {[*whole]}, as the entries say, got {got}")
        weights[name] = found.numbers(rows)
    if kind == "llama":  # pairs that turn are neighbours there
        for name in [name for name in weights if ".query." in name or ".key." in name]:
            weights[name] = rotary.half_apart(weights[name], config.size)
    return config, weights


def _config(facts: Facts, tensors: Tensors, kind: str) -> Config:
    heads, width = facts.take("attention.head_count", int), facts.take("embedding_length", int)
    size = facts.take("attention.key_length", int, default=width // max(heads, 1))
    facts.refuse(
        "attention.value_length", f"{size}, as keys", unless=facts.take("attention.value_length", int, size) == size
    )
    facts.refuse("expert_count", "a model without experts", unless=not facts.take("expert_count", int, default=0))
    context, window = facts.take("context_length", int), facts.take("attention.sliding_window", int, default=0)
    table = tensors.get("token_embd.weight")
    if table is None:
        raise MlaotError(f"{facts.path}: no tensor token_embd.weight, in which each token has a row")
    parts = [part for part, name in PARTS.items() if "norm" not in part and f"blk.0.{name}.bias" in tensors]
    old = kind == "gpt2"
    waves, magnitude, context = ((), 1.0, context) if old else _rotary(facts, kind, size, context, tensors)
    return Config(
        tokens=table.shape[0],
        width=width,
        layers=facts.take("block_count", int),
        heads=heads,
        groups=facts.take("attention.head_count_kv", int, default=heads),
        size=size,
        hidden=facts.take("feed_forward_length", int),
        context=min(context, window) if window > 0 else context,  # within a window nothing slides
        epsilon=facts.take(f"attention.layer_norm_{'' if old else 'rms_'}epsilon", float),
        waves=waves,
        magnitude=magnitude,
        scale=max(0, min(width, MOST)) ** 0.5 if kind == "gemma" else 1.0,
        activation="silu" if kind not in ("gemma", "gpt2") else "gelu_tanh",
        by_root_mean_square=not old,
        gated=not old,
        tied="output.weight" not in tensors,
        normalizes_heads=kind == "qwen3",
        biases=frozenset([*parts, *(ATTENTION if "blk.0.attn_qkv.bias" in tensors else ())]),
    )


def _rotary(facts: Facts, kind: str, size: int, context: int, tensors: Tensors) -> tuple[tuple[float, ...], float, int]:
    """Return the waves of rotary positions, the factor of rotated numbers, and the context of both."""
    turned = facts.take("rope.dimension_count", int, default=size)
    whole = turned == size or (kind == "phi3" and 0 < turned < size)
    facts.refuse("rope.dimension_count", f"{size}, all numbers of a head", unless=whole)
    base, scaling = facts.take("rope.freq_base", float, default=10000.0), facts.behind("rope.scaling.")
    old = facts.take("rope.scale_linear", float, default=0.0)
    factor = scaling.take("factor", float, default=old) or 1.0
    how, magnitude = scaling.take("type", str, default="linear"), scaling.take("attn_factor", float, default=1.0)
    scaling.refuse("type", f"one of {', '.join(SCALED)}", unless=how in SCALED)
    scaling.refuse("type", f"a tensor {SHORT} with longrope", unless=how != "longrope" or SHORT in tensors)
    original = scaling.take("original_context_length", int, default=context)
    waves = rotary.plain(base, turned)
    if how == "linear":
        waves = rotary.linear(waves, factor)
    elif how == "yarn":
        bounds = [
            scaling.take(f"yarn_beta_{end}", float, default=turns) for end, turns in (("fast", 32.0), ("slow", 1.0))
        ]
        weight = scaling.take("yarn_log_multiplier", float, default=0.0)
        scaling.refuse("yarn_log_multiplier", "0 or more", unless=weight >= 0)
        magnitude *= rotary.magnitude(factor) / rotary.magnitude(factor, weight)
        waves = rotary.yarn(waves, base, factor, float(original), *bounds)
    for name in (FREQUENCIES, SHORT):
        if (divisors := tensors.get(name)) is not None:
            if divisors.shape != waves.shape:
                wanted = f"{len(waves)} numbers, one for each pair of a head that turns"
                raise MlaotError(f"{facts.path}: {name}: expected {wanted}, got {[*divisors.shape]}")
            waves = rotary.linear(waves, divisors.numbers(slice(None)))
            context = min(context, original) if name == SHORT else context
    return tuple(waves.tolist()), magnitude, context


def _tensor(name: str, fused: list[Parts]) -> str:
    """Return the name of the tensor of a weight."""
    if not name.startswith("blocks."):
        part, _, what = name.partition(".")
        return f"{WHOLE[part]}.{what or 'weight'}"
    _, layer, part, what = name.split(".")
    own = next((FUSED[parts] for parts in fused if part in parts), PARTS[part])
    return f"blk.{layer}.{own}.{what}"


def read_gguf_tokenizer(path: Path) -> GgufTokenizer:
    """Return the entries of a file about its tokens."""
    facts = Facts(path, read_file(path).entries).behind("tokenizer.ggml.")
    tokens = _texts(facts, "tokens")
    facts.refuse("tokens", "a text for each token", unless=bool(tokens))

    def numbers(name: str, kinds: str) -> list[Any]:
        found: Array = facts.take(name, np.ndarray, default=np.zeros(0, kinds[0]))
        facts.refuse(name, f"{len(tokens)} numbers, one for each token", unless=len(found) in (0, len(tokens)))
        facts.refuse(name, "numbers of another kind", unless=found.dtype.kind in kinds)
        return list(found.tolist())

    def token(name: str) -> int | None:
        found = facts.take(f"{name}_token_id", int, default=-1)
        facts.refuse(f"{name}_token_id", f"one of {len(tokens)} tokens", unless=found < len(tokens))
        return found if found >= 0 else None

    def adds(name: str) -> bool | None:
        return None if facts.entries.get(name) is None else facts.take(name, bool)

    return GgufTokenizer(
        model=facts.take("model", str),
        pre=facts.take("pre", str, default=""),
        tokens=tokens,
        scores=numbers("scores", "f"),
        types=numbers("token_type", "iu"),
        merges=_texts(facts, "merges"),
        begin=token("bos"),
        end=token("eos"),
        unknown=token("unknown"),
        adds_begin=adds("add_bos_token"),
        adds_end=adds("add_eos_token"),
        adds_space=adds("add_space_prefix"),
    )


def _texts(facts: Facts, name: str) -> list[str]:
    found: list[str] = facts.take(name, list, default=[])
    facts.refuse(name, "a list of texts", unless=all(type(text) is str for text in found))
    return found
