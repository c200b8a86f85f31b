"""Write ``cases.json``: the special cases of the array API standard with inputs and results, by the suite's own parser.

    python -m tests.arrayapi.make_cases SUITE     # a checkout of data-apis/array-api-tests with its submodule

For every case of a function that mlaot has: inputs of a fixed pool that meet its condition, argument by argument, and
the results that the standard wants of them (one for all where they are equal): a number, ``~`` and a number that is
near, ``+`` or ``-`` for a sign. Where NumPy decides otherwise, as the standard lets a library do that follows Python,
``numpy`` holds its results: mlaot's functions are NumPy's.
"""

from __future__ import annotations

import json
import math
import os
import sys
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from . import adapter

HERE = Path(__file__).parent
COMMIT = "55fcc60179efa2680ddd6cd926ddf17b83530e2b"
MAGNITUDES = (0.0, 2.0**-100, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 4194303.5, 16777215.0, 2.0**60, math.inf)
POOL = [sign * x for x in MAGNITUDES for sign in (1, -1)] + [float("nan"), float("-nan")]
MOST = 12  # inputs a case
STATISTICAL = {  # of arrays: empty ones, and those with nan
    "[]": {"sum": 0.0, "prod": 1.0, "mean": math.nan, "std": math.nan, "var": math.nan},
    "[nan]": dict.fromkeys(("sum", "prod", "mean", "std", "var", "max", "min"), math.nan),
}


def text(value: float) -> str:
    """A number as text; the sign of nan too."""
    return f"{'-' if math.copysign(1, value) < 0 else ''}nan" if math.isnan(value) else repr(float(value))


def meets(case: Any, values: tuple[float, ...]) -> bool:
    """Whether inputs meet the condition of a case; what the suite's parser cannot tell does not."""
    try:
        return bool(case.cond(*values))
    except (OverflowError, TypeError, ValueError):
        return False


def expected(suite: Any, case: Any, values: tuple[float, ...]) -> str:
    """What the standard wants of inputs, as text; the case's own check has to agree."""
    result = case.result_expr
    if result in ("x_i", "x1_i", "-x1_i", "x2_i", "-x2_i"):
        value = values[1 if "2" in result else 0] * (-1 if result.startswith("-") else 1)
    elif result.startswith("Decimal"):
        value = math.copysign(float(Decimal(values[0]).to_integral_exact(ROUND_HALF_EVEN)), values[0])
    elif result.endswith("sign"):
        return "+" if result.startswith("positive") else "-"
    elif result.startswith("roughly"):
        return "~" + repr(suite.parse_value(result.removeprefix("roughly ").replace("pi", "π")))
    else:
        value = suite.parse_value(result)
    assert case.check_result(*values, value), (case, values, value)
    return text(value)


def numpys(name: str, values: tuple[float, ...]) -> float:
    """What NumPy makes of inputs; in arrays, as numbers may take a shorter way."""
    with np.errstate(all="ignore"):
        return float(getattr(np, name)(*[np.full(2, v) for v in values])[0])


def some(inputs: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """At most ``MOST`` of them, spread over all."""
    return inputs if len(inputs) <= MOST else [inputs[i * len(inputs) // MOST] for i in range(MOST)]


def joined(words: list[str]) -> str:
    """Results as one text, one for all where they are equal."""
    return words[0] if len(set(words)) == 1 else " ".join(words)


def entry(suite: Any, name: str, case: Any, arity: int) -> dict[str, Any] | None:
    """A case as data."""
    inputs = some([values for values in product(POOL, repeat=arity) if meets(case, values)])
    if not inputs:
        print(f"left out, no input meets it: {name}({case})", file=sys.stderr)
        return None
    found: dict[str, Any] = {"function": name, "condition": case.cond_expr, "result": case.result_expr}
    found["inputs"] = [" ".join(map(text, column)) for column in zip(*inputs, strict=True)]
    found["expected"] = joined([expected(suite, case, values) for values in inputs])
    theirs = [numpys(name, values) for values in inputs]
    if not all(case.check_result(*values, value) for values, value in zip(inputs, theirs, strict=True)):
        print(f"NumPy differs: {name}({case}): {theirs}", file=sys.stderr)
        found["numpy"] = joined([text(v) for v in theirs])
    return found


def entries(suite: Any) -> list[dict[str, Any]]:
    """Every case of a function of mlaot on real numbers; operators are their functions."""
    found = []
    for params, arity in ((suite.unary_params, 1), (suite.binary_params, 2)):
        for name, _, case in (p.values for p in params):
            if not name.startswith("__") and not getattr(case, "is_complex", False) and hasattr(adapter, name):
                found.append(entry(suite, name, case, arity))
    return [case for case in found if case is not None]


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    os.environ["ARRAY_API_TESTS_MODULE"] = adapter.__name__
    sys.path.insert(0, str(root))
    from array_api_tests import test_special_cases as suite  # type: ignore[import-not-found]

    cases = entries(suite)
    statistical = [
        {"function": name, "condition": condition, "expected": text(value)}
        for condition, wanted in STATISTICAL.items()
        for name, value in wanted.items()
    ]
    lines = [",\n".join(json.dumps(case) for case in part) for part in (cases, statistical)]
    source = f"data-apis/array-api-tests {COMMIT}"
    body = f'{{"source": "{source}",\n"cases": [\n{lines[0]}\n],\n"statistical": [\n{lines[1]}\n]}}\n'
    (HERE / "cases.json").write_text(body)
    print(f"{len(cases)} cases, {sum(len(c['inputs'][0].split()) for c in cases)} inputs")


if __name__ == "__main__":
    main()
