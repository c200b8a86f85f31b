"""Files of images, which are decoded before a model computes."""

from __future__ import annotations

from typing import Any

from mlaot.errors import MlaotError
from mlaot.onnx.columns import decoded
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.tokenizers.text_steps import PIXELS


@operator("ImageDecoder", since=20)
def image_decoder(use: Use, encoded: Any, *, pixel_format: str = "RGB") -> Any:
    if pixel_format not in PIXELS:
        raise MlaotError(f"there is no pixel_format {pixel_format!r}")
    return decoded(use, encoded, pixel_format)
