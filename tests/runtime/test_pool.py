"""The threads of a Model as C, without Python: under the thread sanitizer, and with other CPUs than this machine's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .. import instrumented

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TEMPLATES = Path(__file__).parent.parent.parent / "templates"
V2 = {"proc/self/cgroup": "0::/box/inner\n"}
V1 = {"proc/self/cgroup": "5:cpuset:/\n4:memory:/x\n3:cpu,cpuacct:/box\n1:name=systemd:/\n0::/\n"}
GROUP = "sys/fs/cgroup"
QUOTAS = {
    "none": ({}, 1000),
    "v2": (V2 | {f"{GROUP}/box/inner/cpu.max": "100000 100000\n"}, 1),
    "v2-fraction": (V2 | {f"{GROUP}/box/inner/cpu.max": "50000 100000\n"}, 1),
    "v2-more-than-one": (V2 | {f"{GROUP}/box/inner/cpu.max": "190000 100000\n"}, 1),
    "v2-many": (V2 | {f"{GROUP}/box/inner/cpu.max": "99900000 100000\n"}, 1000),
    "v2-unlimited": (V2 | {f"{GROUP}/box/inner/cpu.max": "max 100000\n"}, 1000),
    "v2-around": (V2 | {f"{GROUP}/box/inner/cpu.max": "max 100000\n", f"{GROUP}/box/cpu.max": "100000 100000\n"}, 1),
    "v2-top": ({"proc/self/cgroup": "0::/\n", f"{GROUP}/cpu.max": "100000 100000\n"}, 1),
    "v1": (V1 | {f"{GROUP}/cpu/box/cpu.cfs_quota_us": "10000", f"{GROUP}/cpu/box/cpu.cfs_period_us": "10000"}, 1),
    "v1-mounted": (V1 | {f"{GROUP}/cpu/cpu.cfs_quota_us": "10000", f"{GROUP}/cpu/cpu.cfs_period_us": "10000"}, 1),
    "v1-unlimited": (V1 | {f"{GROUP}/cpu/cpu.cfs_quota_us": "-1", f"{GROUP}/cpu/cpu.cfs_period_us": "10000"}, 1000),
    "odd": ({"proc/self/cgroup": "\n:\nno colons\n0::\n" + "x" * 9000}, 1000),
}


def build(folder: Path, *flags: str) -> Path:
    """The program of pool.c."""
    source, program = Path(__file__).with_name("pool.c"), folder / "pool"
    compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *flags]
    subprocess.run([*compiler, f"-I{TEMPLATES}", str(source), "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pool"), "-O2")


def test_pool(pool: Path) -> None:
    """Up to eight threads: every element once, many callers at once, forks, no time spent idle, no memory left."""
    subprocess.run([pool], check=True, timeout=100)


@instrumented.unless
def test_pool_has_no_races(tmp_path: Path) -> None:
    program = build(tmp_path, "-O1", "-fsanitize=thread")
    environ = os.environ | {"TSAN_OPTIONS": "die_after_fork=0"}
    done = subprocess.run([program], env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr[:4000]


@pytest.mark.parametrize("name", QUOTAS)
def test_quotas(pool: Path, tmp_path: Path, name: str) -> None:
    """Control groups of both versions, their own limits and those of the groups around them."""
    files, most = QUOTAS[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    here = len(os.sched_getaffinity(0))
    found = subprocess.run([pool, tmp_path], capture_output=True, text=True, check=True).stdout
    cpus = min(here, most)
    assert [*map(int, found.split())] == [cpus, 1, min(2, cpus), cpus]


@pytest.fixture
def one_cpu() -> Iterator[Path]:
    """A control group of this machine that may use one CPU; making it takes an administrator."""
    for parent, limit, quota in (("cpu", "cpu.cfs_quota_us", "100000"), ("", "cpu.max", "100000 100000")):
        group = Path("/", GROUP, parent, f"mlaot-test-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with (group / limit).open("r+") as file:
                file.write(quota)
            yield group
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    pytest.skip("this user can make no control group with a quota")


def test_quota_of_a_control_group(pool: Path, one_cpu: Path) -> None:
    """The kernel's own files, of a process that is in the group."""
    command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$1" /', one_cpu, pool]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1 1 1 1\n"


def test_affinity(pool: Path, tmp_path: Path) -> None:
    one = {max(os.sched_getaffinity(0))}
    command = [pool, tmp_path]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, one)
    )
    assert done.stdout == "1 1 1 1\n"
