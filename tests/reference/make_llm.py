"""Write llm.npz: small language models of the package transformers, with random weights, and the scores that they give.

    python -m tests.reference.make_llm

Needs the packages ``torch`` and ``transformers``. The scores are computed in float64.
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
WHOLE = {"sliding_window": None}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
    "llama with biases": ("Llama", {**COMMON, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral": (
        "Mistral",
        {**COMMON, "num_key_value_heads": 1, "head_dim": 8, "hidden_act": "gelu", "sliding_window": None},
    ),
    "qwen2": ("Qwen2", {**COMMON, "num_key_value_heads": 2, "rope_theta": 1e6}),
    "qwen3": ("Qwen3", {**COMMON, "num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": True}),
    "gpt2": ("GPT2", {**GPT2, "activation_function": "gelu_new"}),
    "gpt2 apart": ("GPT2", {**GPT2, "activation_function": "relu", "n_inner": 5, "tie_word_embeddings": False}),
}


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


if __name__ == "__main__":
    main()
