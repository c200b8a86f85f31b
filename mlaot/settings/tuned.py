"""The schedules that ``mlaot tune`` stores beside the project's pyproject.toml."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mlaot.errors import MlaotError, writing

TUNED = "mlaot-tuned.json"
Tuned = Mapping[str, Mapping[str, str]]  # by instruction set and contraction: the schedule that was the fastest


def read_tuned(project: Path) -> Tuned:
    """Read the schedules beside the project's pyproject.toml, if there are any."""
    try:
        content = json.loads((project / TUNED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise MlaotError(f"cannot read {TUNED}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise MlaotError(f"{TUNED} is not valid JSON: {error}; rewrite it with mlaot tune, or delete it") from None
    parts = list(content.values()) if isinstance(content, dict) else [None]
    if not all(isinstance(part, dict) and all(isinstance(v, str) for v in part.values()) for part in parts):
        raise MlaotError(f"{TUNED} holds no schedules by instruction set; rewrite it with mlaot tune, or delete it")
    return {str(isa): dict(part) for isa, part in content.items()}


def write_tuned(project: Path, tuned: Tuned) -> None:
    """Store schedules beside the project's pyproject.toml."""
    with writing(project / TUNED):
        (project / TUNED).write_text(json.dumps(tuned, indent=1, sort_keys=True) + "\n", encoding="utf-8")
