"""Continue a text in the manner of the one that was learnt. Needs nothing but this package.

>>> import gpt
>>> for letters in gpt.generate("ROMEO:", max_tokens=500, temperature=0.8, seed=1):
...     print(letters, end="")
"""

from gpt.nn import Model, decode, encode, generate

__all__ = ["Model", "decode", "encode", "generate"]
