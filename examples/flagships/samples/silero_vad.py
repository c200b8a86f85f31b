"""Where somebody speaks: whole recordings, a stream, and a recording in one call while another thread works."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def make(folder: Path) -> None:
    """Write a recording at both rates."""
    import numpy as np
    from sounds import speech

    for rate in (16000, 8000):
        np.save(folder / f"{rate}.npy", speech(rate, 30, seed=1))


def steps(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the answers, and how long another thread waits at most."""
    import numpy as np
    from silero_vad import VADIterator, get_speech_timestamps, load_silero_vad

    audio = {rate: np.load(folder / f"{rate}.npy") for rate in (16000, 8000)}
    model = load_silero_vad(onnx=True)
    yield "first chunk", model(audio[16000][:512], 16000).tolist()
    for rate, recording in audio.items():
        yield f"timestamps at {rate}", get_speech_timestamps(recording, model, sampling_rate=rate)
        yield f"probabilities at {rate}", model.audio_forward(recording[None], rate).tolist()
    stream = VADIterator(model)
    chunks = audio[16000][: len(audio[16000]) // 512 * 512].reshape(-1, 512)
    yield "stream", [said for chunk in chunks if (said := stream(chunk))]
    older = load_silero_vad(onnx=True, opset_version=15)
    yield "older model", older.audio_forward(audio[16000][None], 16000).tolist()

    from silero_vad import get_speech_timestamps_sequence

    sequence = load_silero_vad(sequence=True)
    yield "recording in one call", [float(p) for p in sequence.audio_forward(audio[16000], 16000)]
    yield "timestamps of it", get_speech_timestamps_sequence(audio[16000], sequence)
    yield "longest wait of another thread, ms", longest_wait(lambda: sequence.audio_forward(audio[16000], 16000))


def longest_wait(call: Any) -> dict[str, float]:
    """Return how long a thread that only looks at the clock had to wait at most, while another makes ten calls."""
    done, longest = threading.Event(), 0.0

    def calls() -> None:
        for _ in range(10):
            call()
        done.set()

    thread = threading.Thread(target=calls)
    thread.start()
    before = time.perf_counter()
    while not done.is_set():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    thread.join()
    return {"fact": longest * 1e3}
