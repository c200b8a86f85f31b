"""Published language models: ``mlaot.llm.load(path)`` returns a model like any other, which reads and continues a text.

It reads a folder with ``config.json`` and safetensors, or a GGUF file, of GPT-2, Llama and similar models, or a
checkpoint of llama2.c.
"""

from mlaot.llm.declare import declare_from_settings as declare_from_settings
from mlaot.llm.declare import load as load

__all__ = ["declare_from_settings", "load"]
