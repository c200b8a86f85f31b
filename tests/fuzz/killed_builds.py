"""Builds that are killed at random moments, and damaged files of the cache: the next build is right.

    python -m tests.fuzz.killed_builds --kills 40

Each round changes the model, starts its build, kills all processes of that with SIGKILL, and builds again. Then every
file of the cache is damaged in each of six ways. What is built must be, byte for byte, the wheel that a build without
cache makes in a folder of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "xor"
HOOK = "import mlaot.build as b; b.build_wheel({out!r})"
SIZES = (4, 5, 6)  # of the hidden layer: three models, so that each round has something to compile


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def swap(path: Path) -> None:
    path.write_bytes(next(other for other in path.parent.iterdir() if other != path).read_bytes())


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut in half": half,
    "empty": lambda path: os.truncate(path, 0),
    "a bit flipped": flip,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "another's content": swap,
    "deleted": Path.unlink,
}


class Builds:
    """A project that is built again and again, with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.cache = folder / "cache"
        shutil.copytree(EXAMPLE, self.project, ignore=shutil.ignore_patterns("build", "__pycache__"))
        self.model = (self.project / "model.py").read_text(encoding="utf-8")
        self.wanted = [self.build(number, "off") for number in range(len(SIZES))]
        assert len(set(self.wanted)) == len(SIZES), "the models are not different"

    def start(self, number: int, cache: str) -> subprocess.Popen[str]:
        """Begin to build one of the models."""
        text = self.model.replace("[4, 1]", f"[{SIZES[number]}, 1]")
        (self.project / "model.py").write_text(text, encoding="utf-8")
        code = HOOK.format(out=str(self.folder / "out"))
        environ = os.environ | {"MLAOT_CACHE": cache}
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=self.project,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def build(self, number: int, cache: str | None = None) -> bytes:
        """The wheel of one of the models."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        running = self.start(number, cache or str(self.cache))
        said, _ = running.communicate()
        assert running.returncode == 0, said
        (wheel,) = (self.folder / "out").iterdir()
        return wheel.read_bytes()

    def kill(self, number: int, seconds: float) -> None:
        """Begin a build, and end all its processes after some time."""
        running = self.start(number, str(self.cache))
        time.sleep(seconds)
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()

    def check(self, number: int, what: str) -> None:
        """Build and compare."""
        assert self.build(number) == self.wanted[number], f"{what}: the next build made another wheel"


def run(builds: Builds, kills: int) -> int:
    """Kill that many builds, then damage each file of the cache in each way; how often it was damaged."""
    begun = time.perf_counter()
    builds.check(0, "first build")
    longest = time.perf_counter() - begun
    for n in range(kills):
        seconds = random.uniform(0, 1.1 * longest)
        shutil.rmtree(builds.cache, ignore_errors=True)
        builds.kill(n % len(SIZES), seconds)
        builds.check(n % len(SIZES), f"killed after {seconds:.3f} s")
        print(f"killed {n + 1} of {kills}", end="\r", flush=True)
    shutil.rmtree(builds.cache)
    builds.check(0, "cache filled")
    count = 0
    for path in sorted(builds.cache.iterdir()):
        for what, damage in DAMAGE.items():
            damage(path)
            builds.check(0, f"{path.name} {what}")
            count += 1
            print(f"damaged {count} times", end="\r", flush=True)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        count = run(Builds(Path(folder)), options.kills)
    print(f"{options.kills} builds killed, files of the cache damaged {count} times: each next build was right")


if __name__ == "__main__":
    main()
