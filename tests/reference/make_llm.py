"""Write llm.npz: small language models of the package transformers, with random weights, and the scores they give.

    python -m tests.reference.make_llm

Needs the packages ``torch`` and ``transformers``. The scores are computed in float64. And rotary.json: the waves of
rotary positions that are rescaled, computed in float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

TOKENS = (3, 7, 1, 18, 0, 11, 7)
COMMON = {"vocab_size": 19, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4}
COMMON |= {"intermediate_size": 12, "max_position_embeddings": 16}
GPT2 = {"vocab_size": 19, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
ONE = {"num_attention_heads": 1, "num_key_value_heads": 1}
SOON = {"original_max_position_embeddings": 12, "rope_theta": 20.0}  # such that pairs of small heads differ
LONG = {"rope_type": "longrope", "rope_theta": 20.0, "partial_rotary_factor": 0.75}
LONG |= {"short_factor": [1.0, 1.25, 2.0], "long_factor": [1.5, 2.5, 4.0]}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
    "llama with biases": ("Llama", {**COMMON, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral": (
        "Mistral",
        {**COMMON, "num_key_value_heads": 1, "head_dim": 8, "hidden_act": "gelu", "sliding_window": None},
    ),
    "qwen2": ("Qwen2", {**COMMON, "num_key_value_heads": 2, "rope_theta": 1e6}),
    "qwen3": ("Qwen3", {**COMMON, "num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": True}),
    "linear waves": (
        "Llama",
        {**COMMON, "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 20.0}},
    ),
    "llama3's waves": ("Llama", {**COMMON, "head_dim": 8, "rope_parameters": LLAMA3 | SOON}),
    "yarn's waves": ("Qwen2", {**COMMON, **ONE, "rope_parameters": YARN | SOON | {"beta_fast": 4.0}}),
    "gemma": ("Gemma", {**COMMON, **ONE, "head_dim": 6, "hidden_act": "gelu"}),
    "phi3": ("Phi3", {**COMMON, "num_key_value_heads": 2, "sliding_window": 9, "pad_token_id": 0}),
    "phi3 with longrope": (
        "Phi3",
        {**COMMON, **ONE, "rope_parameters": LONG, "original_max_position_embeddings": 8, "pad_token_id": 0},
    ),
    "gpt2": ("GPT2", {**GPT2, "activation_function": "gelu_new"}),
    "gpt2 apart": ("GPT2", {**GPT2, "activation_function": "relu", "n_inner": 5, "tie_word_embeddings": False}),
}
LARGE = {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072}  # with heads of 128
AT = {"original_max_position_embeddings": 8192, "rope_theta": 5e5}
WAVES: dict[str, dict[str, Any]] = {
    "plain": {"rope_type": "default", "rope_theta": 1e6},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
    "llama 3.1": LLAMA3 | AT,
    "llama 3.2": LLAMA3 | AT | {"factor": 32.0},
    "yarn of qwen": YARN | {"original_max_position_embeddings": 32768, "rope_theta": 1e6},
    "yarn without an original": YARN | {"rope_theta": 1e4},
    "yarn with bounds": YARN | AT | {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.5},
    "yarn of weights": YARN | AT | {"mscale": 1.2, "mscale_all_dim": 0.7},
    "yarn of half": YARN | AT | {"partial_rotary_factor": 0.5},
}


def waves() -> dict[str, Any]:
    """Rotary positions of heads as large as usual: the entries that say how, the waves and their scale."""
    found = {}
    for name, entry in WAVES.items():
        config = transformers.LlamaConfig(**LARGE, rope_parameters=dict(entry))
        rope = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        found[name] = {"entries": LARGE | {"rope_parameters": entry}, "waves": rope.inv_freq.tolist()}
        found[name]["magnitude"] = rope.attention_scaling
    return found


def main() -> None:
    arrays: dict[str, Any] = {"tokens": np.array(TOKENS)}
    for name, (family, options) in CASES.items():
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(**options)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn(weight.shape) * 0.4 + (0.8 if weight.ndim == 1 else 0.0))
        kept = {f"{name}/{key}": value.numpy().copy() for key, value in model.state_dict().items()}
        with torch.no_grad():
            scores = model.double()(torch.tensor([TOKENS])).logits[0].numpy()
        if config.tie_word_embeddings:
            kept.pop(f"{name}/lm_head.weight")
        arrays |= kept | {f"{name}/scores": scores, f"{name}/config": json.dumps(config.to_dict(), default=str)}
    np.savez_compressed(Path(__file__).with_name("llm.npz"), **arrays)
    Path(__file__).with_name("rotary.json").write_text(json.dumps(waves()) + "\n")


if __name__ == "__main__":
    main()
