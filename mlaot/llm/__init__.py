"""Language models that people have: ``mlaot.llm.load(path)`` is a model like any other, which reads a text on and on.

A folder with ``config.json`` and safetensors, or a GGUF file, of GPT-2, Llama and its like; or a checkpoint
of llama2.c.
"""

from mlaot.llm.declare import declare_from_settings as declare_from_settings
from mlaot.llm.declare import load as load

__all__ = ["declare_from_settings", "load"]
