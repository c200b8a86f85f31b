"""How good speech sounds: with noise, after packets were lost, with an echo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def make(folder: Path) -> None:
    """Write recordings, at 16 kHz and at 48 kHz: clear, with noise, with gaps, and the far end of a call."""
    import numpy as np
    from sounds import speech

    rng = np.random.default_rng(4)
    for rate in (16000, 48000):
        clear, far = speech(rate, 10, seed=5), speech(rate, 10, seed=6)
        gaps = clear.copy()
        for begin in rng.integers(0, len(clear) - rate // 10, 12):
            gaps[begin : begin + rate // 20] = 0
        noisy = (clear + rng.normal(0, 0.05, len(clear))).clip(-1, 1).astype(np.float32)
        echo = (clear + 0.3 * np.roll(far, rate // 5)).clip(-1, 1).astype(np.float32)
        np.savez(folder / f"{rate}.npz", clear=clear, far=far, gaps=gaps, noisy=noisy, echo=echo)


def steps(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the opinions of all the models."""
    import numpy as np
    from speechmos import dnsmos

    audio = {rate: dict(np.load(folder / f"{rate}.npz")) for rate in (16000, 48000)}
    for name in ("clear", "noisy"):
        yield f"dnsmos of {name}", numbers(dnsmos.run(audio[16000][name], 16000))
    yield "personalized", numbers(dnsmos.run(audio[16000]["noisy"], 16000, model_type="dnsmos_personalized"))

    from speechmos import aecmos, plcmos

    np.random.seed(0)  # raters are drawn
    yield "plcmos of gaps", numbers(plcmos.run(audio[16000]["gaps"], 16000))
    for rate, kind in ((16000, None), (16000, "dt"), (48000, "st")):
        call = {"lpb": audio[rate]["far"], "mic": audio[rate]["echo"], "enh": audio[rate]["clear"]}
        yield f"aecmos at {rate} of {kind}", numbers(aecmos.run(call, rate, talk_type=kind))


def numbers(found: Any) -> dict[str, Any]:
    """Return a result with numbers of Python's."""
    return {name: value if isinstance(value, str | None) else float(value) for name, value in found.items()}
