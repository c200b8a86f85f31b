"""Write settings.json: the letters of a text, and how the GPT that learns it is built and trained.

    python settings.py --data FILE [--recipe nanogpt] [--steps 2000] [--dropout 0.1] --out settings.json

``nanogpt`` is what nanoGPT's README gives for a CPU, ``femtogpt`` what femtoGPT's program has, ``tiny`` learns next to
nothing, in a second.
"""

import argparse
import json
from pathlib import Path
from typing import Any

RECIPES: dict[str, dict[str, Any]] = {
    "nanogpt": {
        **{"width": 128, "layers": 4, "heads": 4, "context": 64, "dropout": 0.0, "batch": 12, "steps": 2000},
        **{"rate": 1e-3, "least_rate": 1e-4, "warmup": 100, "betas": [0.9, 0.99], "weight_decay": 0.1},
    },
    "femtogpt": {
        **{"width": 64, "layers": 4, "heads": 4, "context": 64, "dropout": 0.0, "batch": 32, "steps": 50000},
        **{"rate": 1e-3, "least_rate": 1e-5, "warmup": 100, "betas": [0.9, 0.999], "weight_decay": 0.01},
    },
    "tiny": {
        **{"width": 16, "layers": 2, "heads": 2, "context": 16, "dropout": 0.0, "batch": 4, "steps": 40},
        **{"rate": 1e-2, "least_rate": 1e-3, "warmup": 4, "betas": [0.9, 0.99], "weight_decay": 0.1},
    },
}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Write the settings of a GPT that learns a text.")
    parser.add_argument("--data", type=Path, required=True, help="the text, in UTF-8")
    parser.add_argument("--recipe", choices=RECIPES, default="nanogpt", help="default: %(default)s")
    parser.add_argument("--steps", type=int, help="how many steps, if not those of the recipe")
    parser.add_argument("--dropout", type=float, help="what share of the values a training step drops, likewise")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    settings = RECIPES[options.recipe] | {"letters": "".join(sorted(set(options.data.read_text(encoding="utf-8"))))}
    settings |= {key: vars(options)[key] for key in ("steps", "dropout") if vars(options)[key] is not None}
    options.out.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
