"""Sounds that are made up: something like speech, by a source and formants, and noise."""

from __future__ import annotations

from typing import Any

import numpy as np

# The first three formants, in Hz, of some vowels.
VOWELS = (
    (730, 1090, 2440),
    (530, 1840, 2480),
    (390, 1990, 2550),
    (570, 840, 2410),
    (440, 1020, 2240),
    (300, 870, 2240),
)


def resonance(signal: Any, frequency: float, width: float, rate: int) -> Any:
    """Return a signal after a resonator of two poles, in the frequency domain."""
    z = np.exp(-2j * np.pi * np.fft.rfftfreq(2 * len(signal)))
    radius, angle = np.exp(-np.pi * width / rate), 2 * np.pi * frequency / rate
    response = (1 - radius) / (1 - 2 * radius * np.cos(angle) * z + radius**2 * z**2)
    return np.fft.irfft(np.fft.rfft(signal, 2 * len(signal)) * response)[: len(signal)]


def syllable(rate: int, seconds: float, rng: Any) -> Any:
    """Return a vowel behind a hiss: pulses of a falling pitch, with its formants."""
    size = int(seconds * rate)
    pitch = np.linspace(rng.uniform(110, 180), rng.uniform(90, 130), size)
    phase = np.cumsum(pitch / rate)
    pulses = np.diff(np.floor(phase), prepend=0.0) + rng.normal(0, 0.01, size)
    vowel = sum(resonance(pulses, f, 60 + 30 * i, rate) / (i + 1) for i, f in enumerate(VOWELS[rng.integers(6)]))
    hiss = resonance(rng.normal(0, 1, size // 4), 3500, 800, rate)
    vowel *= np.hanning(size) ** 0.5
    return np.concatenate([hiss / np.abs(hiss).max() * 0.2, vowel / np.abs(vowel).max()])


def speech(rate: int, seconds: float, seed: int) -> Any:
    """Return words of such syllables, with pauses and a little noise."""
    rng = np.random.default_rng(seed)
    parts, size = [], 0
    while size < seconds * rate:
        for _ in range(rng.integers(3, 9)):
            parts.append(syllable(rate, rng.uniform(0.12, 0.3), rng))
        parts.append(np.zeros(int(rng.uniform(0.2, 1.2) * rate)))
        size = sum(map(len, parts))
    signal = np.concatenate(parts)[: int(seconds * rate)]
    return (0.5 * signal + rng.normal(0, 0.002, len(signal))).clip(-1, 1).astype(np.float32)
