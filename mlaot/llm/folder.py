"""A folder with ``config.json`` and safetensors, as Hugging Face's libraries write it: GPT-2, Llama, Mistral, Qwen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.checked_json import read_json
from mlaot.errors import MlaotError
from mlaot.frontend.trace.files import read
from mlaot.llm import rotary
from mlaot.llm.decoder import Config
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
WAVES = ("default", "linear", "llama3", "yarn")  # the kinds of rotary positions (rotary.py)
ATTENTION = frozenset({"query", "key", "value"})


def read_folder(path: Path) -> tuple[Config, Tensors]:
    """Return what a folder's model is, and its weights by the names of ``Config.shapes``, in float32."""
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
    return config, {name: source.take(name, shape, family) for name, shape in config.shapes().items()}


@dataclass(frozen=True)
class _Family:
    """``tensor`` is the tensor that a weight lies in; ``cut`` takes the weight out of it."""

    config: Callable[[Facts], Config]
    tensor: Callable[[str], str]
    cut: Callable[[str, Array], Array]
    prefix: str


class _Source:
    """The tensors of all safetensors files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise MlaotError(f"no *.safetensors in {folder}; a model's weights lie there, beside config.json")
        self.tensors: Tensors = {name: held.array for file in files for name, held in read(file).items()}

    def take(self, name: str, shape: tuple[int, ...], family: _Family) -> Array:
        """Return a weight; a family's names may lack their prefix."""
        tensor = family.tensor(name)
        found = self.tensors.get(tensor, self.tensors.get(tensor.removeprefix(family.prefix)))
        if found is None:
            raise MlaotError(f"{self.folder}: no tensor {tensor}; config.json says that there is one, {[*shape]}")
        array = family.cut(name, found) if found.ndim == len(shape) else found
        if array.shape != shape or array.dtype.kind != "f":
            raise MlaotError(
                f"{self.folder}: {tensor}: expected what config.json says, numbers {[*shape]} for {name},"
                f" got {array.dtype} {[*array.shape]}"
            )
        return np.ascontiguousarray(array, np.float32)


def _llama_config(facts: Facts) -> Config:
    kind, width = facts.take("model_type", str), facts.take("hidden_size", int)
    heads = facts.take("num_attention_heads", int)
    context, window = facts.take("max_position_embeddings", int), facts.entries.get("sliding_window")
    if isinstance(window, int) and facts.take("use_sliding_window", bool, default=kind == "mistral"):
        context = min(context, window)  # within a window nothing slides
    size = facts.take("head_dim", int, default=width // max(heads, 1))
    waves, magnitude = _rotary(facts, size)
    biased = kind == "qwen2" or facts.take("attention_bias", bool, default=False)
    biases = ATTENTION if biased else frozenset()
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
        activation=_activation(facts, "hidden_act", "silu"),
        tied=facts.take("tie_word_embeddings", bool, default=False),
        normalizes_heads=kind == "qwen3",
        biases=biases,
    )


def _rotary(facts: Facts, size: int) -> tuple[tuple[float, ...], float]:
    """Return the waves of rotary positions, and the scale of what was turned."""
    name = "rope_scaling" if facts.entries.get("rope_scaling") else "rope_parameters"
    own = facts.within(name)
    kind = own.entries.get("rope_type", own.entries.get("type", "default"))
    facts.refuse(name, f"waves of the type {', '.join(WAVES)}", unless=kind in WAVES)
    base = own.take("rope_theta", float, default=facts.take("rope_theta", float, default=10000.0))
    part = own.take("partial_rotary_factor", float, default=facts.take("partial_rotary_factor", float, default=1.0))
    turned = int(min(size, rotary.MOST + 1) * part) if 0 < part <= 1 else 0
    facts.refuse(name, f"a part of {size} numbers of a head that turn, got {part}", unless=turned > 0)
    waves, magnitude = rotary.plain(base, turned), 1.0
    if kind == "linear":
        waves = rotary.linear(waves, own.take("factor", float))
    elif kind != "default":
        context = facts.take("max_position_embeddings", float)
        original = own.take("original_max_position_embeddings", float, default=context)
        original = facts.take("original_max_position_embeddings", float, default=original)
        facts.refuse(name, "an original context of some tokens", unless=original > 0)
        if kind == "llama3":
            low, high = (own.take(f"{end}_freq_factor", float) for end in ("low", "high"))
            waves = rotary.llama3(waves, own.take("factor", float), low, high, original)
        else:
            waves, magnitude = _yarn(own, waves, base, own.take("factor", float, default=context / original), original)
    return tuple(waves.tolist()), magnitude


def _yarn(own: Facts, waves: rotary.Waves, base: float, factor: float, original: float) -> tuple[rotary.Waves, float]:
    """Return the waves and the scale of YaRN; entries that are 0 count as missing."""
    fast, slow = (own.take(name, float, default=0.0) for name in ("beta_fast", "beta_slow"))
    whole = own.take("truncate", bool, default=True)
    weights = [own.take(name, float, default=0.0) for name in ("mscale", "mscale_all_dim")]
    above, below = (rotary.magnitude(factor, weight) for weight in (weights if all(weights) else (1.0, 0.0)))
    magnitude = own.take("attention_factor", float, default=above / below if below else inf)
    return rotary.yarn(waves, base, factor, original, fast or 32.0, slow or 1.0, whole=whole), magnitude


def _llama_tensor(name: str) -> str:
    whole = {"embedding": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "head": "lm_head.weight"}
    if name in whole:
        return whole[name]
    _, layer, part, what = name.split(".")
    return f"model.layers.{layer}.{LLAMA[part]}.{what}"


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
        biases=ATTENTION | {"attended", "up", "down"},
    )


def _gpt2_tensor(name: str) -> str:
    if name == "head":
        return "lm_head.weight"
    if not name.startswith("blocks."):
        part, _, what = name.partition(".")
        return f"transformer.{GPT2[part]}.{what or 'weight'}"
    _, layer, part, what = name.split(".")
    return f"transformer.h.{layer}.{GPT2.get(part, 'attn.c_attn')}.{what}"


def _gpt2_cut(name: str, array: Array) -> Array:
    """Turn products, which are stored as [inputs, outputs], and take queries, keys and values apart."""
    part = name.split(".")[-2] if name.startswith("blocks.") else ""
    if part in ("query", "key", "value") and array.shape[-1] % 3 == 0:
        array = np.split(array, 3, axis=-1)[("query", "key", "value").index(part)]
    return array.T if part and not part.startswith("norm") else array


def _activation(facts: Facts, name: str, default: str) -> str:
    found = facts.take(name, str, default=default)
    facts.refuse(name, f"one of {', '.join(ACTIVATIONS)}", unless=found in ACTIVATIONS)
    return ACTIVATIONS[found]


def _families() -> Iterator[tuple[str, _Family]]:
    for kind in ("llama", "mistral", "qwen2", "qwen3"):
        yield kind, _Family(_llama_config, _llama_tensor, lambda name, array: array, "model.")
    yield "gpt2", _Family(_gpt2_config, _gpt2_tensor, _gpt2_cut, "transformer.")


FAMILIES = dict(_families())
