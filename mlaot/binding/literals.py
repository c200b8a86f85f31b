"""Text, dtypes and numbers as C spells them in tables."""

from __future__ import annotations


def c_text(text: str) -> str:
    """Escape text for the inside of a C string literal."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(char if " " <= char <= "~" else "".join(f"\\{byte:03o}" for byte in char.encode()) for char in text)


def c_lines(text: str) -> list[str]:
    """Format a long text as C string literals, one on each line."""
    return [f'"{c_text(text[i : i + 72])}"' for i in range(0, len(text), 72)]


def c_dtype(dtype: str) -> str:
    """Return the name of a dtype in the C tables and in safetensors: ``F32``."""
    return dtype.upper()


def c_type(dtype: str) -> str:
    """Return the C type of an array's elements; float16 is passed as the bits of its numbers."""
    return {"f16": "uint16_t", "f32": "float", "f64": "double", "bool": "bool"}.get(
        dtype, f"{'u' * (dtype[0] == 'u')}int{dtype[1:]}_t"
    )
