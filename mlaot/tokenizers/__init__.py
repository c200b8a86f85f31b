"""Tokenizers that people have: ``load(path)`` reads one, ``encode`` and ``decode`` use it, ``pack`` makes it C's.

Characters, bytes, BPE, unigram and WordPiece of Hugging Face's files, SentencePiece's models, tiktoken's ranks, and
llama2.c's files. A text goes through steps (``steps``), whose patterns are tables (``patterns``), to its tokens.
"""

from mlaot.tokenizers.files import load as load
from mlaot.tokenizers.packing import pack as pack
from mlaot.tokenizers.tokenizer import Tokenizer as Tokenizer
from mlaot.tokenizers.tokenizer import characters as characters
from mlaot.tokenizers.tokenizer import raw_bytes as raw_bytes

__all__ = ["Tokenizer", "characters", "load", "pack", "raw_bytes"]
