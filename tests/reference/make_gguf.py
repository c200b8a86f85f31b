"""Write gguf.npz: GGUF files of the models in llm.npz and of a quantized one, and blocks of each type with its numbers.

    python -m tests.reference.make_gguf

Needs the packages ``gguf``, ``torch`` and ``transformers``: the first writes the files, quantizes and dequantizes.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf import RopeScalingType, quants

from .make_llm import TOKENS

Array = np.ndarray[Any, Any]
FOLDER = Path(__file__).parent
MODELS = ("llama", "llama with biases", "linear waves", "llama3's waves", "yarn's waves", "qwen2", "qwen3", "gemma")
MODELS += ("phi3", "phi3 with longrope", "gpt2")
TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
QUANTIZED = ("Q8_0", "Q4_0", "Q5_1", "F16", "Q4_1", "BF16", "Q5_0")
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(10)), "▁a", "b", "▁ab", "ä", "é", "東"]


def permuted(weight: Array, heads: int) -> Array:
    """Pairs that turn together from half a head apart to side by side, as llama.cpp has llamas."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write(config: dict[str, Any], tensors: dict[str, Array], types: dict[str, str] | None = None) -> Array:
    """The bytes of a file as llama.cpp's ``convert_hf_to_gguf.py`` makes them."""
    kind, heads = config["model_type"], config.get("num_attention_heads", config.get("n_head"))
    groups, layers = config.get("num_key_value_heads", heads), config.get("num_hidden_layers", config.get("n_layer"))
    path = Path(tempfile.mkdtemp()) / "model.gguf"
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(config.get("max_position_embeddings", config.get("n_positions")))
    writer.add_embedding_length(config.get("hidden_size", config.get("n_embd")))
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_feed_forward_length(config.get("intermediate_size") or 4 * config["n_embd"])
    if kind == "gpt2":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    else:
        writer.add_head_count_kv(groups)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        add_waves(writer, config)
    if kind == "llama":
        add_tokens(writer)
    names = gguf.get_tensor_name_map({name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[kind], layers)
    for name, tensor in tensors.items():
        if kind == "llama" and ".q_proj." in name:
            tensor = permuted(tensor, heads)
        if kind == "llama" and ".k_proj." in name:
            tensor = permuted(tensor, groups)
        if kind == "gemma" and "norm" in name:
            tensor = tensor + 1
        if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            tensor = tensor.T
        quantized = Type[(types or {}).get(name, "F32")]
        data = quants.quantize(np.ascontiguousarray(tensor), quantized)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), data, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return np.frombuffer(path.read_bytes(), np.uint8)


def add_waves(writer: Any, config: dict[str, Any]) -> None:
    """What a file says of rotary positions."""
    waves, size = config["rope_parameters"], config.get("head_dim")
    writer.add_rope_freq_base(waves["rope_theta"])
    if size:
        writer.add_key_length(size)
        writer.add_value_length(size)
        writer.add_rope_dimension_count(size)
    if config["model_type"] == "phi3":
        size = config["hidden_size"] // config["num_attention_heads"]
        writer.add_rope_dimension_count(int(size * waves["partial_rotary_factor"]))
        writer.add_rope_scaling_orig_ctx_len(original := config["original_max_position_embeddings"])
        writer.add_sliding_window(config["sliding_window"] or 0)
    if waves["rope_type"] == "longrope":
        factor = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))
        writer.add_tensor("rope_factors_long.weight", np.array(waves["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(waves["short_factor"], np.float32))
    if waves["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(waves["factor"])
    if waves["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(waves["factor"])
        writer.add_rope_scaling_orig_ctx_len(waves["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(waves["beta_fast"])
    if waves["rope_type"] == "llama3":
        rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(transformers.LlamaConfig(**config))
        plain = waves["rope_theta"] ** -(np.arange(0, size, 2) / size)
        writer.add_tensor("rope_freqs.weight", (plain / rotary.inv_freq.numpy()).astype(np.float32))


def add_tokens(writer: Any) -> None:
    """Pieces with scores."""
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(PIECES)
    writer.add_token_scores([-float(i) for i in range(len(PIECES))])
    writer.add_token_types([2, 3, 3, *[6] * 10, *[1] * 6])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def quantized() -> dict[str, Any]:
    """A model of several types; the scores are those of the numbers that its blocks stand for."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 19, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
    config = transformers.LlamaConfig(**sizes, **heads)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        weight.data = torch.randn(weight.shape) * 0.2 + (0.8 if weight.ndim == 1 else 0.0)
    tensors = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    tables = [name for name, value in tensors.items() if value.ndim == 2]
    types = {name: QUANTIZED[i % len(QUANTIZED)] for i, name in enumerate(tables)}
    for name, kind in types.items():
        weight = quants.dequantize(quants.quantize(tensors[name], Type[kind]), Type[kind])
        model.get_parameter(name).data = torch.from_numpy(weight)
    with torch.no_grad():
        scores = model.double()(torch.tensor([TOKENS])).logits[0].numpy()
    return {"files/quantized": write(config.to_dict(), tensors, types), "quantized/scores": scores}


def blocks() -> dict[str, Any]:
    """Three rows of two blocks of each type: quantized normal numbers where that is possible, else any bits."""
    rng, found = np.random.default_rng(0), dict[str, Any]()
    for name in TYPES:
        kind = Type[name]
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        try:
            raw = quants.quantize(rng.normal(size=(3, 2 * numbers)).astype(np.float32), kind).view(np.uint8)
        except NotImplementedError:
            raw = rng.integers(0, 256, (3, 2 * size)).astype(np.uint8)
            while not np.isfinite(quants.dequantize(raw, kind)).all():
                raw = rng.integers(0, 256, (3, 2 * size)).astype(np.uint8)
        found |= {f"blocks/{name}": raw, f"numbers/{name}": quants.dequantize(raw, kind)}
    return found


def main() -> None:
    models = dict(np.load(FOLDER / "llm.npz"))
    arrays = blocks() | quantized()
    for name in MODELS:
        own = {key.removeprefix(f"{name}/"): value for key, value in models.items() if key.startswith(f"{name}/")}
        config = json.loads(str(own.pop("config")))
        own.pop("scores")
        arrays[f"files/{name}"] = write(config, own)
    np.savez_compressed(FOLDER / "gguf.npz", **arrays)


if __name__ == "__main__":
    main()
