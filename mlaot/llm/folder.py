"""Read a folder with ``config.json`` and safetensors in the format of Hugging Face: GPT-2, Llama and similar models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.checked_json import read_json
from mlaot.errors import MlaotError
from mlaot.frontend.trace.files import read
from mlaot.llm import rotary
from mlaot.llm.decoder import MOST, Config
from mlaot.llm.facts import Facts

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu"}
ACTIVATIONS |= {"gelu_pytorch_tanh": "gelu_tanh"}
LLAMA = {
    **{"norm1": "input_layernorm", "norm2": "post_attention_layernorm"},
    **{"query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj"},
    **{"attended": "self_attn.o_proj", "query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm"},
    **{"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"},
}
GPT2 = {
    **{"embedding": "wte", "positions": "wpe", "norm": "ln_f", "norm1": "ln_1", "norm2": "ln_2"},
    **{"attended": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"},
}
PHI3 = LLAMA | dict.fromkeys(("query", "key", "value"), "self_attn.qkv_proj")
PHI3 |= dict.fromkeys(("gate", "up"), "mlp.gate_up_proj")
WAVES = ("default", "linear", "llama3", "longrope", "yarn")  # the kinds of rotary positions (rotary.py)
ATTENTION = ("query", "key", "value")
SLIDING = ("mistral", "phi3")  # whose window slides if it is there


def read_folder(path: Path) -> tuple[Config, Tensors]:
    """Return the configuration of a folder's model, and its weights in float32 by the names of ``Config.shapes``."""
    file = path / "config.json"
    facts = Facts(file, read_json(file, dict, str(file)))
    kind = facts.take("model_type", str)
    if kind not in FAMILIES:
        raise MlaotError(f"{facts.path}: model_type: expected one of {', '.join(sorted(FAMILIES))}, got {kind!r}")
    family = FAMILIES[kind]
    config = family.config(facts)
    if problem := config.problem():
        raise MlaotError(f"{facts.path}: {problem}")
    source = _Source(path)
    return config, {name: source.take(name, shape, family, config) for name, shape in config.shapes().items()}


@dataclass(frozen=True)
class _Family:
    """A family of models.

    ``tensor`` names a weight's tensor, ``fused`` parts share a tensor, and ``change`` converts one.
    """

    config: Callable[[Facts], Config]
    tensor: Callable[[str], str]
    prefix: str = "model."
    fused: tuple[tuple[str, ...], ...] = ()
    change: Callable[[str, Array], Array] = lambda name, array: array


class _Source:
    """The tensors of all safetensors files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise MlaotError(f"no *.safetensors in {folder}; a model's weights lie there, beside config.json")
        self.tensors: Tensors = {name: held.array for file in files for name, held in read(file).items()}

    def take(self, name: str, shape: tuple[int, ...], family: _Family, config: Config) -> Array:
        """Return a weight. The names of a family may lack their prefix."""
        tensor = family.tensor(name)
        found = self.tensors.get(tensor, self.tensors.get(tensor.removeprefix(family.prefix)))
        if found is None:
            raise MlaotError(f"{self.folder}: no tensor {tensor}; config.json says that there is one, {[*shape]}")
        rows, whole = config.rows(name, shape, family.fused)
        array = family.change(name, found)
        if array.shape != whole or array.dtype.kind != "f":
            raise MlaotError(
                f"{self.folder}: {tensor}: expected what config.json says, numbers {[*whole]} for {name},"
                f" got {array.dtype} {[*array.shape]}"
            )
        return np.ascontiguousarray(array[rows], np.float32)


def _llama_config(facts: Facts) -> Config:
    kind, width = facts.take("model_type", str), facts.take("hidden_size", int)
    heads = facts.take("num_attention_heads", int)
    context, window = facts.take("max_position_embeddings", int), facts.entries.get("sliding_window")
    if isinstance(window, int) and facts.take("use_sliding_window", bool, default=kind in SLIDING):
        context = min(context, window)  # within a window nothing slides
    size = facts.take("head_dim", int, default=width // max(heads, 1))
    waves, magnitude, context = _rotary(facts, size, context)
    activation = _activation(facts, "hidden_act", "gelu" if kind == "gemma" else "silu")
    biased = kind == "qwen2" or facts.take("attention_bias", bool, default=False)
    biases = frozenset(ATTENTION if biased else ())
    if biased and kind != "qwen2":
        biases |= {"attended"}
    if facts.take("mlp_bias", bool, default=False):
        biases |= {"gate", "up", "down"}
    return Config(
        tokens=facts.take("vocab_size", int),
        width=width,
        layers=facts.take("num_hidden_layers", int),
        heads=heads,
        groups=facts.take("num_key_value_heads", int, default=heads),
        size=size,
        hidden=facts.take("intermediate_size", int),
        context=context,
        epsilon=facts.take("rms_norm_eps", float, default=1e-6),
        waves=waves,
        magnitude=magnitude,
        scale=max(0, min(width, MOST)) ** 0.5 if kind == "gemma" else 1.0,
        activation="gelu_tanh" if activation == "gelu" and kind == "gemma" else activation,  # as its authors meant
        tied=facts.take("tie_word_embeddings", bool, default=kind == "gemma"),
        normalizes_heads=kind == "qwen3",
        biases=biases,
    )


def _rotary(facts: Facts, size: int, context: int) -> tuple[tuple[float, ...], float, int]:
    """Return the waves of rotary positions, the factor of rotated numbers, and the context of both."""
    name = "rope_scaling" if facts.entries.get("rope_scaling") else "rope_parameters"
    own = facts.within(name)
    kind = own.entries.get("rope_type") or own.entries.get("type") or "default"
    if kind in ("su", "yarn") and facts.entries.get("model_type") == "phi3":
        kind = "longrope"  # which had no name yet
    facts.refuse(name, f"waves of the type {', '.join(WAVES)}", unless=kind in WAVES)
    by_layer = any(isinstance(entry, dict) for entry in own.entries.values())
    facts.refuse(name, "the same waves in all layers", unless=not by_layer)
    base = own.take("rope_theta", float, default=facts.take("rope_theta", float, default=10000.0))
    part = own.take("partial_rotary_factor", float, default=facts.take("partial_rotary_factor", float, default=1.0))
    turned = int(min(size, rotary.MOST + 1) * part) if 0 < part <= 1 else 0
    facts.refuse(name, f"a part of {size} numbers of a head that turn, got {part}", unless=turned > 0)
    waves, magnitude = rotary.plain(base, turned), 1.0
    if kind == "linear":
        waves = rotary.linear(waves, own.take("factor", float))
    elif kind != "default":
        most = facts.take("max_position_embeddings", float)
        original = own.take("original_max_position_embeddings", float, default=most)
        original = facts.take("original_max_position_embeddings", float, default=original)
        facts.refuse(name, "an original context of some tokens", unless=original > 0)
        if kind == "llama3":
            low, high = (own.take(f"{end}_freq_factor", float) for end in ("low", "high"))
            waves = rotary.llama3(waves, own.take("factor", float), low, high, original)
        elif kind == "yarn":
            waves, magnitude = _yarn(own, waves, base, own.take("factor", float, default=most / original), original)
        else:
            factors = [own.checked("short_factor", factor, float) for factor in own.take("short_factor", list)]
            facts.refuse(name, f"{len(waves)} factors", unless=len(factors) == len(waves))
            waves = rotary.linear(waves, np.array(factors))
            magnitude = rotary.long_magnitude(own.take("factor", float, default=most / original), original)
            magnitude = own.take("attention_factor", float, default=magnitude)
            context = int(min(context, original))  # within which the short factors hold
    return tuple(waves.tolist()), magnitude, context


def _yarn(own: Facts, waves: rotary.Waves, base: float, factor: float, original: float) -> tuple[rotary.Waves, float]:
    """Return the waves and the scale of YaRN; entries that are 0 count as missing."""
    fast, slow = (own.take(name, float, default=0.0) for name in ("beta_fast", "beta_slow"))
    whole = own.take("truncate", bool, default=True)
    weights = [own.take(name, float, default=0.0) for name in ("mscale", "mscale_all_dim")]
    above, below = (rotary.magnitude(factor, weight) for weight in (weights if all(weights) else (1.0, 0.0)))
    magnitude = own.take("attention_factor", float, default=above / below if below else inf)
    return rotary.yarn(waves, base, factor, original, fast or 32.0, slow or 1.0, whole=whole), magnitude


def _tensor(names: Mapping[str, str]) -> Callable[[str], str]:
    """Return the tensor of a weight in a family that has these names for the parts of a block."""

    def tensor(name: str) -> str:
        whole = {"embedding": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "head": "lm_head.weight"}
        if name in whole:
            return whole[name]
        _, layer, part, what = name.split(".")
        return f"model.layers.{layer}.{names[part]}.{what}"

    return tensor


def _gpt2_config(facts: Facts) -> Config:
    width, heads = facts.take("n_embd", int), facts.take("n_head", int)
    facts.refuse("n_head", f"a divisor of n_embd, {width}", unless=heads > 0 and width % heads == 0)
    scales = "scale_attn_by_inverse_layer_idx"
    facts.refuse(scales, "false", unless=not facts.entries.get(scales))
    return Config(
        tokens=facts.take("vocab_size", int),
        width=width,
        layers=facts.take("n_layer", int),
        heads=heads,
        groups=heads,
        size=width // heads,
        hidden=facts.take("n_inner", int, default=4 * width),
        context=facts.take("n_positions", int),
        epsilon=facts.take("layer_norm_epsilon", float, default=1e-5),
        activation=_activation(facts, "activation_function", "gelu_new"),
        by_root_mean_square=False,
        gated=False,
        tied=facts.take("tie_word_embeddings", bool, default=True),
        biases=frozenset({*ATTENTION, "attended", "up", "down"}),
    )


def _gpt2_tensor(name: str) -> str:
    if name == "head":
        return "lm_head.weight"
    if not name.startswith("blocks."):
        part, _, what = name.partition(".")
        return f"transformer.{GPT2[part]}.{what or 'weight'}"
    _, layer, part, what = name.split(".")
    return f"transformer.h.{layer}.{GPT2.get(part, 'attn.c_attn')}.{what}"


def _gpt2_change(name: str, array: Array) -> Array:
    """Transpose weights of products, which are stored as [inputs, outputs]."""
    return array.T if name.startswith("blocks.") and array.ndim == 2 else array


def _gemma_change(name: str, array: Array) -> Array:
    """Add 1 to the scales of normalizations, which are stored minus 1."""
    return array.astype(np.float32) + 1 if "norm" in name and array.dtype.kind == "f" else array


def _activation(facts: Facts, name: str, default: str) -> str:
    found = facts.take(name, str, default=default)
    facts.refuse(name, f"one of {', '.join(ACTIVATIONS)}", unless=found in ACTIVATIONS)
    return ACTIVATIONS[found]


FAMILIES = {kind: _Family(_llama_config, _tensor(LLAMA)) for kind in ("llama", "mistral", "qwen2", "qwen3")}
FAMILIES["gemma"] = _Family(_llama_config, _tensor(LLAMA), change=_gemma_change)
FAMILIES["phi3"] = _Family(_llama_config, _tensor(PHI3), fused=(ATTENTION, ("gate", "up")))
FAMILIES["gpt2"] = _Family(_gpt2_config, _gpt2_tensor, "transformer.", (ATTENTION,), _gpt2_change)
