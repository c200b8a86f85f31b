"""What is in the wheels, and what the extension modules ask of a machine."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .conftest import Site, Wheel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")

PACKAGES = {"xor": "xor", "train": "digits_train", "serve": "digits"}
ZOO = ("mixed", "pair", "named", "bare", "counted", "grid", "spare", "kinds")
MODULES = {
    **{name: (f"{package}/nn",) for name, package in PACKAGES.items()},
    "zoo": (*(f"zoo/{model}" for model in ZOO), "cages/far/large"),
}


def tool(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", MODULES)
def test_contents(wheel: Wheel, name: str) -> None:
    """The extension modules, their stubs, packages for them and the metadata; no model.py, no weights, no C."""
    made = wheel(name)
    packages = {Path(module).parent.as_posix() for module in MODULES[name]}
    expected = {f"{module}{suffix}" for module in MODULES[name] for suffix in (".abi3.so", ".pyi")}
    expected |= {f"{package}/{file}" for package in packages for file in ("__init__.py", "py.typed")}
    info = f"{PACKAGES.get(name, name)}-1.0.dist-info"
    if name == "zoo":  # its models share a runtime, which no import shows
        hooks = (f"hook-{module.replace('/', '.')}.py" for module in MODULES[name])
        expected |= {f"zoo/__pyinstaller/{hook}" for hook in ("__init__.py", *hooks)}
        expected |= {"zoo/runtime.abi3.so", f"{info}/entry_points.txt"}
        expected |= {f"{info}/licenses/LICENSE-pair", f"{info}/model-cards/zoo.pair.md"}
    expected |= {f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"}
    expected.add(f"{info}/sboms/{info.removesuffix('-1.0.dist-info')}.cdx.json")
    with zipfile.ZipFile(made) as file:
        assert set(file.namelist()) == expected
        metadata = file.read(f"{info}/METADATA").decode()
        tags = file.read(f"{info}/WHEEL").decode()
        record = file.read(f"{info}/RECORD").decode()
    assert "Requires-Dist" not in metadata
    machine = platform.machine()
    assert re.fullmatch(rf"{info.removesuffix('.dist-info')}-cp311-abi3-\w*linux\w*_{machine}\.whl", made.name)
    assert re.search(rf"^Tag: cp311-abi3-\w*linux\w*_{machine}$", tags, re.MULTILINE)
    assert "Root-Is-Purelib: false" in tags
    assert {line.split(",")[0] for line in record.split()} == expected


def test_a_shared_runtime_is_there_once(wheel: Wheel) -> None:
    """A small model adds less than 20 KB; with a runtime of its own it would take 60 and more."""
    with zipfile.ZipFile(wheel("zoo")) as file:
        sizes = {info.filename: info.file_size for info in file.infolist()}
    assert sizes["zoo/bare.abi3.so"] < 20_000 and sizes["zoo/counted.abi3.so"] < 20_000
    assert sizes["zoo/runtime.abi3.so"] < 100_000
    with zipfile.ZipFile(wheel("serve")) as file:
        assert file.getinfo("digits/nn.abi3.so").file_size > 60_000


@pytest.mark.parametrize("name", MODULES)
def test_abi3audit(wheel: Wheel, name: str) -> None:
    """Nothing outside of the stable ABI of 3.11."""
    pytest.importorskip("abi3audit")
    tool(sys.executable, "-m", "abi3audit", "--strict", wheel(name))


@pytest.mark.parametrize("name", MODULES)
def test_libraries(site: Site, name: str) -> None:
    """One symbol for others, an old C library, no search path, no debug information, no executable stack."""
    for module in MODULES[name]:
        library = site(name) / f"{module}.abi3.so"
        exported = tool("nm", "-D", "--defined-only", library).split()
        assert exported[2::3] == [f"PyInit_{Path(module).name}"]
        versions = re.findall(r"GLIBC_([\d.]+)", tool("nm", "-D", "--undefined-only", library))
        assert max(tuple(map(int, version.split("."))) for version in versions) <= (2, 17), versions
        dynamic = tool("readelf", "-Wd", library)
        assert not re.search("RPATH|RUNPATH|TEXTREL|SONAME", dynamic)
        assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) <= {"libc.so.6"}
        assert not re.search(r"\.debug|\.symtab", tool("readelf", "-WS", library))
        assert re.search(r"GNU_STACK.* RW ", tool("readelf", "-Wl", library))


@pytest.mark.parametrize("name", MODULES)
def test_nothing_of_the_builder(site: Site, wheel: Wheel, name: str) -> None:
    """No path of the machine that built the wheel."""
    folder = str(wheel(name).parents[1]).encode()
    for path in site(name).rglob("*"):
        assert path.is_dir() or folder not in path.read_bytes()
