"""The vector helpers that C calls: each is a template of ``templates/vector``.

A helper is called ``<family>_<dtype>`` for scalars and ``<family>_<dtype>v`` for vectors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from mlaot.nest.expressions import HALVES
from mlaot.nest.reductions import BY_LANES
from mlaot.printing.spelling import MEMORY as C_TYPES
from mlaot.printing.spelling import OPERATORS
from mlaot.render import render, template_names
from mlaot.schedule.machine import Machine as Isa

BITS = {"f32": 32, "f64": 64, "i32": 32, "i64": 64}
FLOATS = ("f32", "f64")

# Vectors of any dtype, and the ones that convert: ``load_u8_as_f32v``.
MEMORY = {"splat", *("load", "load_part", "store", "store_part", "gather", "gather_part", "scatter", "scatter_part")}
CONVERTING = {"load", "load_part", "gather", "gather_part"}
NARROWING = {"store", "store_part", "scatter", "scatter_part"}  # ``store_u8_as_f32v``: of whole numbers
WORDS = {"splat_word", "dot4", "dot4_pairs", "dot2", "halves", "nibbles"}  # of bytes, or of numbers of 16 bits
# One text for scalars and vectors of floats.
GENERIC = {
    *("splat", "select", "first", "abs", "sign", "copysign", "sqrt", "nearest"),
    *("greater", "lesser", "max", "min", "relu", "step"),
    *("floor", "ceil", "trunc", "round", "remainder", "floor_divide"),
    *("isnan", "eq", "ne", "lt", "le", "gt", "ge"),
    *("nearest_inside", "round_f16", "round_bf16", "rounded", "held"),
}
FOLD = {f"fold{half}": half for half in (1, 2, 4, 8)}
VECTOR = {"lane", "store_mask", "any", "even", "odd", "transpose", *BY_LANES, *FOLD}  # of floats
# Parts of the functions below: for either dtype, for one, or for either in a file of its own.
PARTS = {
    *("head", "excess", "exp_parts", "exp_scaled", "log_fraction", "log_pair", "log_edges", "log_plus", "log1p_plus"),
    *("atan_plus", "arc", "power"),
}
ONE_DTYPE = {
    **{"low": "f64", "high": "f64", "narrow": "f32"},
    **{"turn_rest": "f64", "sine_parts": "f64", "reduce_large": "f64", "fmod_large": "f64"},
    **{"exp2_half": "f64", "log2_half": "f64"},
    **{"power_half": "f64", "erfc_half": "f64", "erfinv_half": "f64", "tan_half": "f64"},
}
TWO_FILES = {"turn"}
SHARED = {"types", "scalar", "wide", "extreme", "lanes", "fold", "round_half", "turn_f32", "turn_f64"}  # by several
ARGUMENTS = {"pow": "xy", "power": "xy", "atan2": "yx", "hypot": "xy", "fmod": "xy", "nextafter": "xy"}
# What f32 computes within 4 ulp, in two thirds of the time, unless results must not depend on the machine.
FAST = ("tanh", "sigmoid", "softplus", "erf", "log1p")
# What f32 computes as f64, and the function that is good enough for it.
WIDE = {"tan": "tan_half", "erfc": "erfc_half", "erfinv": "erfinv_half", "power": "power_half", "fmod": "fmod"}

# ln 2, and in two parts, of which the first has so few bits that its products with exponents are exact.
LN2_ROUNDED = {"f32": "0x1.62e43p-1f", "f64": "0x1.62e42fefa39efp-1"}
LN2 = {"f32": ("0x1.62e4p-1", "0x1.7f7d1cp-20"), "f64": ("0x1.62e42fefap-1", "0x1.cf79abc9e3b3ap-40")}
# pi/2 as the sum of two numbers.
HALF_PI = {"f32": ("0x1.921fb6p0", "-0x1.777a5cp-25"), "f64": ("0x1.921fb54442d18p0", "0x1.1a62633145c07p-54")}
# q of exp(r) = 1 + r + r^2 q(r) for |r| <= ln(2) / 2, fitted by least squares weighted to nearly equal peaks.
EXP_Q = {
    "f32": ("0x1.fffffcp-2", "0x1.555482p-3", "0x1.55593ep-5", "0x1.1245d2p-7", "0x1.6a101ep-10"),
    "f64": (
        *("0x1.000000000000cp-1", "0x1.55555555554e6p-3", "0x1.555555554fb7cp-5", "0x1.111111112b96fp-7"),
        *("0x1.6c16c1872a52ap-10", "0x1.a01a011bb4d0fp-13", "0x1.a01991994c288p-16", "0x1.71df38474755ap-19"),
        *("0x1.28b57991b8660p-22", "0x1.ad76b6f0bfe48p-26"),
    ),
}
# q of log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + s^2 q(s^2)) with s = f / (2 + f).
LOG_Q = {
    "f32": ("0x1.555554p-1", "0x1.999a82p-2", "0x1.2436fcp-2", "0x1.e34116p-3"),
    "f64": (
        *("0x1.5555555555597p-1", "0x1.999999997e3bcp-2", "0x1.249249437b03fp-2", "0x1.c71c50b56c28ep-3"),
        *("0x1.7466887d3471ap-3", "0x1.3999f27be87f7p-3", "0x1.2f574d29648bfp-3"),
    ),
}

_NAME = re.compile(r"([a-z]\w*?)_(?:(f16|bf16|f32|f64|i32|i64|i16|i8|u8|bool)_as_)?(f32|f64|i32|i64)(v?)")


@cache
def functions() -> frozenset[str]:
    """Return the functions of floats that each have a template of their own, such as ``exp``."""
    families = {name.split(".")[0] for name in template_names("vector")}
    families = {
        name for name in families if not name.endswith(("_as", "_half", "_part", "_fast")) and name not in SHARED
    }
    return frozenset(families - {*GENERIC, *MEMORY, *WORDS, *VECTOR, *PARTS, *ONE_DTYPE})


def seconds_of_calls(calls: Mapping[str, int]) -> float:
    """Estimate gcc's time at -O2 for the transcendental functions among calls."""
    return 0.015 * sum(count for name, count in calls.items() if name.rpartition("_")[0] in functions())


def vector_types(isa: Isa, *, is_long: bool = False) -> str:
    """Return the types that helpers and kernels use."""
    return render("vector/types.h.j2", bytes=isa.bytes, is_long=is_long)


def vector_helper(name: str, isa: Isa) -> str | None:
    """Return the text of a helper, or None if there is none of that name."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    family, source, dtype, form = parts.groups(default="")
    if not _is_helper(family, source, dtype, form):
        return None
    return render(_template(family, source, dtype, form, isa), **_context(name, family, source, dtype, form, isa))


def _is_helper(family: str, source: str, dtype: str, form: str) -> bool:
    if source:
        if family in NARROWING:
            return form == "v" and source in ("u8", "i8", "i16") and dtype in FLOATS
        families = {"load", "load_part"} if source in HALVES else CONVERTING  # weights, which have no gaps
        return form == "v" and family in families and dtype in FLOATS and source != dtype
    if form == "v" and family in MEMORY:
        return True
    if family in WORDS:
        return form == "v" and dtype == "i32"
    if family in ONE_DTYPE:
        return dtype == ONE_DTYPE[family]
    return dtype in FLOATS and (
        family in GENERIC | functions() or (form == "v" and family in VECTOR | PARTS | TWO_FILES)
    )


def _template(family: str, source: str, dtype: str, form: str, isa: Isa) -> str:
    if source and family not in ("scatter", "scatter_part"):  # which are one text
        family = f"{family}_half" if source in HALVES else f"{family}_as"
    elif family in BY_LANES:
        family = "lanes"
    elif family in FOLD:
        family = "fold"
    elif family in TWO_FILES:
        family = f"{family}_{dtype}"
    elif family in ("greater", "lesser"):
        family = "extreme"
    elif family in ("round_f16", "round_bf16"):
        family = "round_half"
    elif family in functions() and not form:  # one lane of the vectors' function, so that both give the same bits
        family = "scalar"
    elif family in WIDE and dtype == "f32":
        family = "wide"
    elif family in FAST and dtype == "f32" and not isa.deterministic:
        family = f"{family}_fast"
    return f"vector/{family}.c.j2"


def _context(name: str, family: str, source: str, dtype: str, form: str, isa: Isa) -> dict[str, Any]:
    """Return the words of the templates."""
    bits, c = BITS[dtype], C_TYPES[dtype]
    lanes = isa.bytes * 8 // bits if form else 1
    float_ = f"f{bits}"
    return {
        "name": name,
        "family": family,
        "wide": WIDE.get(family, ""),
        "greater": family == "greater",
        "t": dtype + form,  # suffix of helpers
        "dtype": dtype,
        "c": c,  # one element
        "V": dtype + form if form else c,  # values
        "I": f"i{bits}v" if form else f"int{bits}_t",  # their bits
        "U": f"u{bits}v" if form else f"uint{bits}_t",
        "M": f"i{bits}v" if form else "int",  # masks, as comparisons give them
        "F": f"{float_}v",  # floats of that size
        "c_float": C_TYPES[float_],
        "c_int": "int" if bits == 32 else "long long",
        "packed": "ps" if bits == 32 else "pd",  # as builtins call them
        "bits": bits,
        "sign_bit": hex(1 << (bits - 1)),
        "mantissa": 52 if bits == 64 else 23,
        "bias": 1023 if bits == 64 else 127,
        "log2e": "0x1.71547652b82fep0",
        "natural": math.log(2),
        "ln2": LN2.get(dtype),
        "ln2_rounded": LN2_ROUNDED.get(dtype),
        "half_pi": HALF_PI.get(dtype),
        "exp_q": EXP_Q.get(dtype),
        "log_q": LOG_Q.get(dtype),
        "infinity": "__builtin_inf()" if dtype == "f64" else "__builtin_inff()",
        "nan": '__builtin_nan("")' if dtype == "f64" else '__builtin_nanf("")',
        "f": "f" if dtype == "f32" else "",  # suffix of literals
        "vector": form == "v",
        "lanes": lanes,
        "words": isa.bytes // 8,
        "isa": isa,
        "source": source,
        "c_source": C_TYPES.get(source, ""),
        "arguments": list(ARGUMENTS.get(family, "x")),
        "combine": _combine(family, dtype + form),
        "alternate": lambda first, second: _alternate(dtype + form, lanes, first, second),
        **_shuffles(family, bits, lanes, isa.bytes),
        "polynomial": lambda x, coefficients: polynomial(x, coefficients, dtype),
        "number": lambda value: number(value, dtype),
    }


def _alternate(vector: str, lanes: int, first: int, second: int) -> str:
    """Return the C of every second lane of x from the number ``first`` on, then of y from ``second`` on.

    One instruction selects 32-bit lanes of both in each half of 32 bytes, and another one orders pairs of lanes.
    """
    x, y = range(first, lanes, 2), range(lanes + second, 2 * lanes, 2)
    if vector not in ("f32v", "i32v") or lanes != 8:
        return f"__builtin_shufflevector(x, y, {', '.join(map(str, (*x, *y)))})"
    chosen = ", ".join(map(str, (*x[:2], *y[:2], *x[2:], *y[2:])))
    return f"({vector})__builtin_shufflevector((f64v)__builtin_shufflevector(x, y, {chosen}), (f64v){{0}}, 0, 2, 1, 3)"


def _shuffles(family: str, bits: int, lanes: int, size: int) -> dict[str, Any]:
    """Return the lists of lanes by which templates shuffle vectors of ``size`` bytes.

    The lanes of a second vector follow those of the first. For 4 lanes:

        folded(0), half = 1   0 2 4 6     the first of each pair of groups of ``half`` lanes; folded(half): the second
        swapped(4, 2)         2 3 0 1     each lane i and the lane i ^ half, as in a butterfly

    ``every_byte`` and ``every_fourth`` take the first byte of each lane, or of each four, of a vector of bytes, and
    ``every_second_half`` each second number of 16 bits.
    """

    def join(indices: Iterable[int]) -> str:
        return ", ".join(map(str, indices))

    half = FOLD.get(family, 0)
    return {
        "lane_list": lambda text: ", ".join(text.replace("$", str(i)) for i in range(lanes)),
        "every_fourth": join(4 * i % size for i in range(size)),
        "every_second_half": join(2 * i % (size // 2) for i in range(size // 2)),
        "every_byte": join(bits // 8 * i % size for i in range(size)),
        "backwards": join(reversed(range(lanes))),
        "half": half,
        "folded": lambda start: join(i + start for i in range(2 * lanes) if i % (2 * half) < half),
        "halves_of": lambda n: [n >> i for i in range(1, n.bit_length())],
        "swapped": lambda n, half: join(i ^ half for i in range(n)),
        "transposition": lambda: [
            [(a, b, join(places)) for a, b, places in rows] for rows in _transposition(lanes, 128 // bits)
        ],
    }


def _transposition(lanes: int, part: int) -> list[list[tuple[int, int, list[int]]]]:
    """Return the steps that transpose a square of ``lanes`` rows: for each new row, two old rows and their lanes.

    First the square's parts of ``part`` lanes, 16 bytes, are exchanged. Then each part is transposed by interleaving
    its rows, which needs one instruction per row on every CPU.
    """
    steps = []
    for half in [lanes >> i for i in range(1, lanes.bit_length()) if lanes >> i >= part]:
        near = [i if not i & half else lanes + i - half for i in range(lanes)]
        far = [i + half if not i & half else lanes + i for i in range(lanes)]
        steps.append([(k, k + half, near) if not k & half else (k - half, k, far) for k in range(lanes)])
    lower = [i // part * part + i % part // 2 + lanes * (i % 2) for i in range(lanes)]
    upper = [i + part // 2 for i in lower]
    zipped = [(k // part * part + k % part // 2, upper if k % 2 else lower) for k in range(lanes)]
    return steps + [[(first, first + part // 2, places) for first, places in zipped]] * (part.bit_length() - 1)


def _combine(family: str, suffix: str) -> str:
    """Return C that combines two vectors, ``x`` and ``other``, as a step of a reduction to one number."""
    if family not in BY_LANES:
        return ""
    function = BY_LANES[family].function
    return f"x {OPERATORS[function][0]} other" if function in OPERATORS else f"{function}_{suffix}(x, other)"


def number(value: float | str, dtype: str) -> str:
    """Return a C literal, exact to the last bit."""
    value = float.fromhex(value) if isinstance(value, str) else float(value)
    text = repr(value) if len(repr(value)) < 8 else re.sub(r"\.?0*p", "p", value.hex())
    return f"{text}f" if dtype == "f32" else text


def polynomial(x: str, coefficients: Iterable[float | str], dtype: str) -> str:
    """Return ``c0 + c1 x + c2 x^2 + ..`` by Horner's scheme."""
    *rest, last = [number(c, dtype) for c in coefficients]
    text = last
    for c in reversed(rest):
        text = f"{text} * {x} + {c}" if text == last else f"({text}) * {x} + {c}"
    return f"({text})"
