"""Tokenizers of published models: ``load(path)`` reads one, ``encode`` and ``decode`` use it, and ``pack`` packs it for
C.

They are characters, bytes, and BPE, unigram and WordPiece models of Hugging Face's files, SentencePiece's models,
tiktoken's ranks, and llama2.c's files. Steps (``steps``), whose patterns are tables (``patterns``), prepare a text,
which is then split into tokens.
"""

from mlaot.tokenizers.files import load as load
from mlaot.tokenizers.packing import pack as pack
from mlaot.tokenizers.tokenizer import Tokenizer as Tokenizer
from mlaot.tokenizers.tokenizer import characters as characters
from mlaot.tokenizers.tokenizer import raw_bytes as raw_bytes

__all__ = ["Tokenizer", "characters", "load", "pack", "raw_bytes"]
