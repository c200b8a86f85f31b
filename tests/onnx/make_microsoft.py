"""What onnxruntime gives for the operators of its own domain, stored for the tests. Needs onnxruntime.

    python -m tests.onnx.make_microsoft

Where onnxruntime has no kernel for CPUs, the case's own formula answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .make_special import answers, by_hand, by_onnxruntime, declared
from .microsoft_cases import microsoft_cases
from .special import MICROSOFT, store


def main() -> None:
    kept, cases = [], microsoft_cases()
    for case, found in zip(cases, answers(by_onnxruntime, cases), strict=True):
        rows: list[Any] = []
        for given, outputs in zip(case.sets, found, strict=True):
            if case.answer:
                rows.append((given, by_hand(case, given), "NumPy", ""))
            elif isinstance(outputs, str):
                print(f"{case.name}: {outputs}")
            else:
                rows.append((given, outputs, "onnxruntime", ""))
        if rows:
            case = declared(replace(case, sets=tuple(row[0] for row in rows)), rows[0][1])
            kept.append((case, [row[1:] for row in rows]))
    store(MICROSOFT, kept)
    print(f"{len(kept)} models, {MICROSOFT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
