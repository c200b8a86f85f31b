"""Tokenizers that people have: ``load(path)`` reads one, ``encode`` and ``decode`` use it, ``pack`` makes it C's.

Characters, bytes, byte-level BPE (GPT-2, Llama 3, Qwen), BPE and unigram of SentencePiece, and llama2.c's files.
"""

from mlaot.tokenizers.files import load as load
from mlaot.tokenizers.packing import pack as pack
from mlaot.tokenizers.tokenizer import Tokenizer as Tokenizer
from mlaot.tokenizers.tokenizer import characters as characters
from mlaot.tokenizers.tokenizer import raw_bytes as raw_bytes

__all__ = ["Tokenizer", "characters", "load", "pack", "raw_bytes"]
