"""Read a tokenizer: a file of a known format, or the folder of a model that has one."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlaot.checked_json import MAX_BYTES, read_json
from mlaot.errors import MlaotError
from mlaot.tokenizers.hugging_face import read_tokenizer_json, read_vocabulary, read_word_list
from mlaot.tokenizers.llama2c import read_tokenizer_bin
from mlaot.tokenizers.ranks import read_ranks
from mlaot.tokenizers.sentencepiece import read_model
from mlaot.tokenizers.tokenizer import Tokenizer

SETTINGS = ("tokenizer_config.json", "generation_config.json", "config.json")
BESIDE = ("merges.txt", *SETTINGS)  # what is read, too, if it is there
NAMES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "tokenizer.bin",
)  # of a folder's file, the first one


def load(path: Path | str) -> Tokenizer:
    """Return the tokenizer of a file or a folder. Files beside it give the tokens that begin and end a text."""
    path = Path(path)
    if path.is_dir():
        found = next((path / name for name in NAMES if (path / name).is_file()), None)
        if found is None:
            raise MlaotError(f"{path}: expected one of {', '.join(NAMES)}, found none")
        path = found
    for file in (path, *(path.with_name(name) for name in BESIDE)):
        if file.is_file():
            sys.audit("mlaot.load", str(file))  # a build notes it as a source of the model
    return _with_settings(_read(path), path.parent)


def _read(path: Path) -> Tokenizer:
    if path.suffix == ".json":
        return read_vocabulary(path) if path.name == "vocab.json" else read_tokenizer_json(path)
    if path.name == "vocab.txt":
        settings = path.with_name(SETTINGS[0])
        said = read_json(settings, dict, str(settings)) if settings.is_file() else {}
        return read_word_list(path, said.get("do_lower_case") is not False)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MlaotError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise MlaotError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    if path.suffix == ".tiktoken" or re.match(rb"[A-Za-z0-9+/=]+ \d+\r?\n", data):
        return read_ranks(path, data)
    if path.suffix == ".bin":
        return read_tokenizer_bin(path, data)
    if path.suffix == ".model":
        return read_model(path, data)
    raise MlaotError(f"{path}: expected a tokenizer: *.json, *.model, *.tiktoken or *.bin")


def _with_settings(found: Tokenizer, folder: Path) -> Tokenizer:
    """Return a tokenizer with the tokens that begin and end a text, read from the files beside it."""
    settings, generation, model = (
        read_json(folder / name, dict, str(folder / name)) if (folder / name).is_file() else {} for name in SETTINGS
    )
    ids = {text.decode(): i for text, i in found.added.items()}

    def token(name: str) -> tuple[int, ...]:
        entry: Any = settings.get(name)
        text = entry.get("content") if isinstance(entry, dict) else entry
        return (ids[text],) if isinstance(text, str) and text in ids else ()

    begin, adds = found.begin, settings.get("add_bos_token")
    if adds is False:
        begin = ()
    elif adds is True and not begin:
        begin = token("bos_token")
    listed = next((entry for of in (generation, model) if (entry := of.get("eos_token_id")) is not None), None)
    numbers = listed if isinstance(listed, list) else [listed]
    known = tuple(i for i in numbers if type(i) is int and 0 <= i < len(found.tokens))
    closing, adds = found.closing, settings.get("add_eos_token")
    if adds is not None:
        closing = (closing or token("eos_token")) if adds else ()
    return replace(found, begin=begin, closing=closing, end=known or token("eos_token") or found.end)
