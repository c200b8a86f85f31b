"""Published language models as declared models: ``mlaot.llm.load(path)``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import mlaot.nn.functional as F
from mlaot.errors import MlaotError
from mlaot.frontend.trace.declaration import Declaration
from mlaot.frontend.trace.model import model as declared
from mlaot.frontend.trace.text import Text
from mlaot.ir.dims import dim
from mlaot.ir.types import i64
from mlaot.llm.decoder import Config, Decoder
from mlaot.llm.find_tokenizer import find_tokenizer
from mlaot.llm.folder import read_folder
from mlaot.llm.gguf import read_gguf
from mlaot.llm.gguf_file import is_gguf
from mlaot.llm.llama2c import read_checkpoint
from mlaot.optim import Adam, Optimizer
from mlaot.settings import ModelSettings, Settings
from mlaot.tokenizers import Tokenizer

CONTEXT = 2048  # tokens of a text that are kept, where neither the model nor its user wants fewer


@dataclass(frozen=True)
class Wishes:
    """A user's options for texts: the context, the tokenizer, whether texts slide, and how many texts at once."""

    context: int | None = None
    tokenizer: Tokenizer | Path | None = None
    slides: bool = False
    texts: int = 1


def load(
    path: str | Path,
    context: int | None = None,
    optimizer: Optimizer | None = None,
    *,
    tokenizer: Tokenizer | str | Path | None = None,
    slides: bool = False,
    texts: int = 1,
) -> Declaration:
    """Declare a language model: a folder with config.json and safetensors, a GGUF file, or a checkpoint of llama2.c.

    A relative path is searched beside the calling module first. A text has at most ``context`` tokens, by default the
    context of the model, but at most 2,048. If a text ``slides``, it continues after these. ``tokenizer`` is a
    tokenizer or the path of one. By default it is that of the folder or the GGUF file, if there is one.
    ``generate_all`` writes this many ``texts`` at once.

    With an ``optimizer`` the model trains by the cross entropy of each token of a text after the tokens before it. Then
    ``forward`` takes whole texts, and an entry ``read`` takes the place of the usual ``forward``. A file that cannot be
    compiled raises ``MlaotError``.
    """
    folder = Path(sys._getframe(1).f_code.co_filename).parent
    if isinstance(tokenizer, str | Path):
        tokenizer = _beside(folder, tokenizer)
    return _declare(_beside(folder, path), str(path), Wishes(context, tokenizer, slides, texts), optimizer)


def _beside(folder: Path, path: str | Path) -> Path:
    return folder / path if (folder / path).exists() else Path(path)


def declare_from_settings(settings: Settings, model: ModelSettings, sample: Any = None) -> Declaration:
    """Declare the language model that a project's settings name."""
    dims: Mapping[str, int] = model.sizes
    if unknown := sorted(set(dims) - {"context", "texts"}):
        raise MlaotError(f"dims: a language model has the dims 'context' and 'texts', got {', '.join(unknown)}")
    tokenizer = settings.project / model.tokenizer if model.tokenizer else None
    wishes = Wishes(dims.get("context"), tokenizer, model.slides, dims.get("texts", 1))
    declared = _declare(settings.project / model.llm, model.llm, wishes, Adam(lr=1e-3) if model.lora else None)
    return replace(declared, sample=sample)


def _declare(path: Path, name: str, wishes: Wishes, optimizer: Optimizer | None) -> Declaration:
    if not path.exists():
        expected = "a folder with config.json, a GGUF file, or a checkpoint of llama2.c"
        raise MlaotError(f"no file or folder {name}; expected {expected}")
    for file in [path / "config.json", *sorted(path.glob("*.safetensors"))] if path.is_dir() else [path]:
        sys.audit("mlaot.load", str(file))  # a build notes it as a source of the model
    config, weights = _read(path)
    context = wishes.context
    if context is not None and not 2 <= context <= config.context:
        raise MlaotError(f"{name}: context: expected 2 to {config.context:,}, the model's own, got {context}")
    text = Text(
        context or min(config.context, CONTEXT),
        find_tokenizer(path, wishes.tokenizer, config.tokens),
        slides=wishes.slides,
        entry="forward" if optimizer is None else "read",
        texts=wishes.texts,
    )
    decoder = Decoder(config, weights, text)

    def read(tokens: Any) -> Any:
        """Read the next tokens of a text, and return the scores of all tokens that may follow."""
        return decoder(tokens)

    read.__annotations__ = {"tokens": i64[dim("n")]}
    if optimizer is None:
        return Declaration(declared(read, parameters=decoder.weights, text=text).trace, f"{name}: ")

    def forward(texts: Any) -> Any:
        """Read whole texts, and return the scores of all tokens that may follow each of their tokens."""
        return decoder.whole(texts)

    def loss(scores: Any, texts: Any) -> Any:
        """Return the mean cross entropy of each token but the first, in nats."""
        return F.cross_entropy(scores[:, :-1].reshape((-1, config.tokens)), texts[:, 1:].reshape(-1))

    forward.__annotations__ = loss.__annotations__ = {"texts": i64[dim("batch"), dim("n")]}
    model = declared(forward, loss=loss, optimizer=optimizer, parameters=decoder.weights, text=text)
    model.entry(read)
    return Declaration(model.trace, f"{name}: ")


def _read(path: Path) -> tuple[Config, Mapping[str, np.ndarray[Any, Any]]]:
    """Return the configuration of a model, and its weights. The first bytes of a file determine its format."""
    if path.is_dir():
        return read_folder(path)
    return read_gguf(path) if is_gguf(path) else read_checkpoint(path)
