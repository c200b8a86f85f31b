"""Write frames.json: rows of tokens as tokenizers makes them of texts and of pairs, by its post-processors.

    python -m tests.reference.make_frames

Needs the package tokenizers; the files are those of tokenizer_parts.json.gz.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

FILE = "bert"
SPECIAL = {f"[{name}]": {"id": f"[{name}]", "ids": ids, "tokens": []} for name, ids in (("A", [7, 8]), ("B", [9]))}


def template(text: str) -> list[dict[str, Any]]:
    """Return the parts of a template such as ``[A]:0 A:0 [B]:1``."""
    parts = [part.split(":") for part in text.split()]
    return [
        {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": int(type_)}} for name, type_ in parts
    ]


def templates(single: str, pair: str) -> dict[str, Any]:
    """Return a post-processor of templates."""
    special = {key: {**value, "tokens": ["x"] * len(value["ids"])} for key, value in SPECIAL.items()}
    kind = "TemplateProcessing"
    return {"type": kind, "single": template(single), "pair": template(pair), "special_tokens": special}


def truncation(most: int, direction: str = "Right") -> dict[str, Any]:
    """Return what a file says of long texts."""
    return {"max_length": most, "direction": direction, "strategy": "LongestFirst", "stride": 0}


BERT = {"type": "BertProcessing", "sep": ["x", 3], "cls": ["y", 2]}
ROBERTA = {
    "type": "RobertaProcessing",
    "sep": ["x", 3],
    "cls": ["y", 2],
    "trim_offsets": True,
    "add_prefix_space": True,
}
XLNET = templates("A:0 [B]:0 [A]:2", "A:0 [B]:0 B:1 [B]:1 [A]:2")
PARTS: list[tuple[Any, Any]] = [
    (None, None),
    (BERT, None),
    (ROBERTA, truncation(9)),
    (XLNET, None),
    (templates("[A]:0 A:0 [B]:0", "[A]:0 B:3 [B]:0 A:1"), truncation(12, "Left")),
    *((BERT, truncation(most, side)) for most in (3, 4, 5, 8, 13) for side in ("Right", "Left")),
]


def main() -> None:
    folder = Path(__file__).parent
    stored = json.loads(gzip.decompress((folder / "tokenizer_parts.json.gz").read_bytes()))
    texts = [text for text in stored["texts"] if len(text) < 80][:20]
    given = [[text] for text in texts] + [[a, b] for i, a in enumerate(texts[:12]) for b in (texts[i - 3], texts[4])]
    content = {**stored["files"][FILE], "model": stored["models"][stored["files"][FILE]["model"]]}
    added = [row for row in content["added_tokens"] if not row["normalized"]]
    content["added_tokens"] = [{**row, "id": len(content["model"]["vocab"]) + i} for i, row in enumerate(added)]
    cases = list[dict[str, Any]]()
    for processor, cut in PARTS:
        said = {"post_processor": processor, "truncation": cut, "padding": None}
        one, rows = Tokenizer.from_str(json.dumps({**content, **said})), list[Any]()
        for each in given:
            if len(each) > 1 and cut is not None and cut["max_length"] < one.num_special_tokens_to_add(True):
                rows.append(None)
                continue
            found = one.encode(*each)
            rows.append([[*found.ids], [*found.type_ids]])
        cases.append({"said": said, "rows": rows})
    out = {"file": FILE, "given": given, "cases": cases}
    (folder / "frames.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
