"""The seed's training job on MNIST: an epoch of 60,000 images, 784-50-10, shuffled, batch 20, lr 0.1; and batch 1.

    python benchmarks/training.py DATA [--yardstick FOLDER]

DATA holds the four idx files, packed or not. FOLDER holds hand-written C of the same job: ref_batch.c, ref_vec.c, and
for ``MLAOT_ISA=v3`` ref_batch_avx2.c and ref_vec_avx2.c. It is compiled for this CPU, or for AVX2, and run in turn with
the module; its time is the yardstick. ``sparse``: images are declared sparse, and zeros are skipped. The yardsticks
skip them too, except that of dense single images. One core, CPU seconds.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import re
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import build, load, one_core, out
from seed import declared

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
# By what they are compared with: the file and its options. The one for batches passes over zeros.
YARDSTICKS = {
    "batch 20": ("ref_batch",),
    "batch 1": ("ref_vec", "-DVARIANT=3"),
    "batch 1 sparse": ("ref_vec", "-DVARIANT=4"),
}
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def read(folder: Path, name: str) -> bytes:
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()


def mnist(folder: Path) -> list[Bytes]:
    data = [read(folder, name) for name in FILES]
    return [
        np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784)
        if i % 2 == 0
        else np.frombuffer(raw, np.uint8, offset=8)
        for i, raw in enumerate(data)
    ]


def order() -> Any:
    """The seed's shuffled order: drawn after its weights."""
    random.seed(1337)
    for count in (50 * 784, 10 * 50):
        for _ in range(count):
            random.uniform(-1, 1)
    places = list(range(60000))
    random.shuffle(places)
    return np.array(places)


def epoch(model: Any, images: Bytes, labels: Any, batch: int, lr: float) -> float:
    """CPU seconds of one epoch: shuffled, as the yardstick's batches are, or in order, as its single images."""
    started = time.process_time()
    model.fit(images, labels, lr, batch=batch, shuffle=batch > 1)
    return time.process_time() - started


def yardstick(program: Path, *arguments: str) -> float:
    text = subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout
    found = re.search(r"epoch 0: CPU ([0-9.]+) s", text)
    assert found is not None, text
    return float(found[1])


def compile_yardsticks(source: Path, folder: Path, data: Path) -> dict[str, list[str]]:
    for name in FILES:
        (folder / name).write_bytes(read(data, name))
    start = declared_weights()
    (folder / "weights").write_bytes(start)
    (folder / "order").write_bytes(struct.pack("<60000i", *order().tolist()))
    twin, arch = ("_avx2", "x86-64-v3") if os.environ.get("MLAOT_ISA") == "v3" else ("", "native")
    commands = {}
    for real in ("double", "float"):
        for name, (file, *more) in YARDSTICKS.items():
            program = folder / f"{name}_{real}"
            flags = ["-O3", f"-march={arch}", f"-DREAL={real}", *more]
            subprocess.run(["cc", *flags, source / f"{file}{twin}.c", "-o", program, "-lm"], check=True)
            arguments = ["0.1", "20", "1", "weights", "order"] if name == "batch 20" else ["0.01", "1", "60000"]
            paths = [str(folder / a) if a in ("weights", "order") else a for a in arguments]
            commands[f"{name}_{real}"] = [str(program), str(folder), *paths]
    return commands


def declared_weights() -> bytes:
    from mlaot.micrograd import MLP

    random.seed(1337)
    values = [p.data for p in MLP(784, [50, 10]).parameters()]
    return struct.pack(f"<{len(values)}d", *values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--yardstick", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    images, labels, test_images, test_labels = mnist(options.data)
    labels, places = labels.astype(np.int64), order()
    one_core()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = compile_yardsticks(options.yardstick, folder, options.data) if options.yardstick else {}
        for dtype, real in (("float64", "double"), ("float32", "float")):
            module = load(build(declared(dtype), "nn", folder / dtype))
            passing = load(build(declared(dtype, sparse=True), "nn", folder / f"{dtype}_sparse"))
            model = module.Model()
            first = [model.loss(images[i], int(labels[i])) for i in places[:3]]
            out(f"{dtype}: loss of the first three images {', '.join(f'{v:.10f}' for v in first)}")
            mean = model.fit(images[places], labels[places], 0.1, batch=20, shuffle=False)
            right = np.asarray(model.forward(test_images)).argmax(1) == test_labels
            out(f"  mean loss of the epoch {mean:.6f}, test accuracy {right.mean():.4f}")
            times: dict[str, list[float]] = {}
            for _ in range(options.rounds):
                for batch, lr in ((20, 0.1), (1, 0.01)):
                    seconds = epoch(module.Model(), images, labels, batch, lr)
                    times.setdefault(f"batch {batch}", []).append(seconds)
                    seconds = epoch(passing.Model(), images, labels, batch, lr)
                    times.setdefault(f"batch {batch} sparse", []).append(seconds)
                for ours in YARDSTICKS if commands else ():
                    command = commands[f"{ours}_{real}"]
                    times.setdefault(f"{ours} yardstick", []).append(yardstick(Path(command[0]), *command[1:]))
            for kind in ("batch 20", "batch 20 sparse", "batch 1", "batch 1 sparse"):
                named = kind if kind in YARDSTICKS else "batch 20"
                best, other = min(times[kind]), min(times.get(f"{named} yardstick", [float("nan")]))
                out(f"  {kind}: {best:.4f} s an epoch; hand-written C {other:.4f} s; ratio {best / other:.2f}")


if __name__ == "__main__":
    main()
