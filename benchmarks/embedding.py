"""Embeddings of texts by mlaot and by onnxruntime with tokenizers: are they equal, and how fast.

    MLAOT_ISA=v3 taskset -c 1 python -m benchmarks.embedding TEXT [--layers 4] [--width 256]

``TEXT`` is a plain text. A WordPiece vocabulary is learned from its lines, and each line is embedded by a BERT of
random weights: 4 layers of width 256, and the mean over the tokens. transformers makes the model, and torch exports it
to ONNX. mlaot compiles that file together with the tokenizer's; onnxruntime reads it. Both run on one core. A time is
the least CPU time of a call, of several rounds in turns. Needs these packages.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

from mlaot import Tokens
from mlaot.onnx import load as load_onnx

from .common import build, chosen_isas, load, one_core, table

NAMES = ("input_ids", "attention_mask", "token_type_ids")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROUNDS, BATCH, WORDS = 40, 32, 8000


def learn(lines: list[str], path: Path) -> tokenizers.Tokenizer:
    """Learn a vocabulary of pieces of words, and write its file."""
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        lines, trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=SPECIAL, show_progress=False)
    )
    ends = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    made.enable_truncation(512)
    made.enable_padding()
    made.save(str(path))
    return made


class Mean(torch.nn.Module):
    """The mean of what an encoder makes of the tokens of each text."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: Any, mask: Any, types: Any) -> Any:
        found = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        weight = mask[:, :, None].to(found.dtype)
        return (found * weight).sum(1) / weight.sum(1)


def export(tokenizer: tokenizers.Tokenizer, layers: int, width: int, path: Path) -> None:
    """Write the ONNX file of a BERT of random weights."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    model = Mean(transformers.BertModel(config, add_pooling_layer=False)).eval()
    example = tuple(map(torch.tensor, arrays(tokenizer, ["a b", "c"]).values()))
    axes = {name: {0: "batch", 1: "sequence"} for name in NAMES} | {"embedding": {0: "batch"}}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            example,
            str(path),
            input_names=[*NAMES],
            output_names=["embedding"],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )


def arrays(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> dict[str, Any]:
    """Return what the file takes for texts."""
    found = tokenizer.encode_batch(texts) if len(texts) > 1 else [tokenizer.encode(texts[0])]
    rows = ([e.ids for e in found], [e.attention_mask for e in found], [e.type_ids for e in found])
    return dict(zip(NAMES, map(np.array, rows), strict=True))


def least(*calls: Callable[[], object]) -> list[float]:
    """Return the least time of each call, in microseconds, of rounds in which they take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            begun = time.process_time()
            call()
            best[i] = min(best[i], time.process_time() - begun)
    return [1e6 * seconds for seconds in best]


def main() -> None:
    """Compare, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a plain text")
    parser.add_argument("--layers", type=int, default=4, help="of the model")
    parser.add_argument("--width", type=int, default=256, help="of the model")
    options = parser.parse_args()
    one_core()
    torch.set_num_threads(1)
    folder, lines = Path(tempfile.mkdtemp()), [line for line in options.text.read_text().split("\n") if len(line) > 20]
    tokenizer = learn(lines, folder / "tokenizer.json")
    export(tokenizer, options.layers, options.width, folder / "model.onnx")
    declared = load_onnx(folder / "model.onnx", tokens=Tokens(folder / "tokenizer.json"))
    nn = load(build(declared, "embedding", folder / "c", chosen_isas()))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"])
    rng, rows = random.Random(0), list[list[str]]()
    paragraphs = [" ".join(lines[i : i + rng.randint(1, 12)]) for i in rng.choices(range(len(lines) - 12), k=BATCH)]
    for name, texts in {
        "a sentence": [lines[5]],
        f"{BATCH} sentences": lines[100 : 100 + BATCH],
        f"{BATCH} paragraphs": paragraphs,
    }.items():
        expected = session.run(None, arrays(tokenizer, texts))[0]
        error = np.abs(np.asarray(nn.forward(texts)) - expected).max() / np.abs(expected).max()
        own, peer, cut = least(
            lambda texts=texts: nn.forward(texts),
            lambda texts=texts: session.run(None, arrays(tokenizer, texts)),
            lambda texts=texts: arrays(tokenizer, texts),
        )
        tokens = sum(len(e.ids) for e in map(tokenizer.encode, texts))
        rows.append(
            [name, str(tokens), f"{own:,.0f}", f"{peer:,.0f}", f"{cut:,.0f}", f"{own / peer:.2f}", f"{error:.0e}"]
        )
    table(("", "tokens", "mlaot, us", "onnxruntime, us", "of it tokenizers", "ratio", "error"), rows)


if __name__ == "__main__":
    main()
