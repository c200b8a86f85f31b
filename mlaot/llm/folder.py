"""A folder with ``config.json`` and safetensors, as Hugging Face's libraries write it: GPT-2, Llama, Mistral, Qwen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.checked_json import read_json
from mlaot.errors import MlaotError
from mlaot.frontend.trace.files import read
from mlaot.llm.decoder import Config

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
ATTENTION = frozenset({"query", "key", "value"})


class Facts:
    """The entries of ``config.json``; those that are missing or of another kind are errors that name them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Any] = read_json(path, dict, str(path))

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """Return an entry; one that is missing or null is the default, and without a default an error."""
        value = self.entries.get(name)
        return self.checked(name, default if value is None else value, kind)

    def checked(self, name: str, value: Any, kind: type) -> Any:
        """Return the value of an entry, whole numbers as floats where these are expected; refuse another kind."""
        if kind is float and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) is not kind:
            got = "nothing" if value is None else repr(value)
            raise MlaotError(f"{self.path}: {name}: expected {kind.__name__}, got {got}")
        return value

    def refuse(self, name: str, expected: str, *, unless: bool) -> None:
        """Refuse an entry that says what is not computed here."""
        if not unless:
            raise MlaotError(f"{self.path}: {name}: expected {expected}, got {self.entries.get(name)!r}")


def read_folder(path: Path) -> tuple[Config, Tensors]:
    """Return what a folder's model is, and its weights by the names of ``Config.shapes``, in float32."""
    facts = Facts(path / "config.json")
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
    theta = facts.take("rope_theta", float, default=10000.0)
    for name in ("rope_scaling", "rope_parameters"):
        entry = facts.take(name, dict, default={})
        waves = entry.get("rope_type", entry.get("type", "default"))
        facts.refuse(name, "waves of the type 'default'", unless=waves == "default")
        theta = facts.checked("rope_theta", entry.get("rope_theta", theta), float)
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
        size=facts.take("head_dim", int, default=width // max(heads, 1)),
        hidden=facts.take("intermediate_size", int),
        context=context,
        epsilon=facts.take("rms_norm_eps", float, default=1e-6),
        theta=theta,
        activation=_activation(facts, "hidden_act", "silu"),
        tied=facts.take("tie_word_embeddings", bool, default=False),
        normalizes_heads=kind == "qwen3",
        biases=biases,
    )


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
        theta=None,
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
