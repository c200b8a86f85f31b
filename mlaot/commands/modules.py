"""Find the built modules that commands name by a wheel, a file, or the name of an import."""

from __future__ import annotations

import email.parser
import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlaot.binding.shared import is_runtime
from mlaot.errors import MlaotError
from mlaot.probe import BuiltModule
from mlaot.probe.beside import SUFFIXES, is_plain_python

# Errors of reading an archive that is no archive, encrypted, or packed in a way that Python does not know.
DAMAGES = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, UnicodeDecodeError, OverflowError)


@contextmanager
def modules_of(target: str, *, required: bool = False) -> Iterator[list[BuiltModule]]:
    """Yield the modules of a wheel, which stays unpacked meanwhile, or the single module with that file or name.

    With ``required``, a wheel without modules raises ``MlaotError``.
    """
    path = Path(target)
    if path.is_dir():
        raise MlaotError(f"{target} is a folder; expected a wheel, such as pip wheel --no-deps {target} makes")
    if path.suffix == ".whl":
        with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
            with open_wheel(path) as wheel:
                wheel.extractall(folder)
                names = sorted(wheel.namelist())
                libraries = [n for n in names if n.endswith(SUFFIXES) and ".libs/" not in n]
                libraries += [n for n in names if n.endswith(".py") and is_plain_python(wheel.read(n))]
            if required and not libraries:
                raise MlaotError(f"{target} holds no extension module")
            modules = [BuiltModule(module_name(name), Path(folder, name)) for name in libraries]
            yield [module for module in modules if module.file and not is_runtime(module.file.read_bytes())]
    elif path.suffix in SUFFIXES:
        if not path.is_file():
            raise MlaotError(f"no file {target}; expected a wheel, an extension module's file, or a module's name")
        yield [BuiltModule(module_name(path.name), path)]
    elif all(part.isidentifier() for part in target.split(".")):
        yield [BuiltModule(target)]
    else:
        raise MlaotError(f"expected a wheel, an extension module's file, or a module's name, got {target!r}")


def module_name(path: str) -> str:
    """Return ``digits.nn`` for ``digits/nn.abi3.so``."""
    folder, _, name = path.rpartition("/")
    return ".".join([*folder.split("/"), name.partition(".")[0]] if folder else [name.partition(".")[0]])


@contextmanager
def open_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel for reading, and turn errors of reading it into ``MlaotError``."""
    try:
        with zipfile.ZipFile(path) as wheel:
            yield wheel
    except FileNotFoundError:
        raise MlaotError(f"no file {path}; expected a wheel") from None
    except DAMAGES as error:
        raise MlaotError(f"{path} is no wheel, or a damaged one: {error}") from None
    except OSError as error:
        raise MlaotError(f"{path} cannot be read: {error.strerror}") from None


def read_wheel(path: Path) -> dict[str, Any]:
    """Read a wheel without importing it: metadata, tags, and files with sizes and checksums."""
    with open_wheel(path) as wheel:
        headers = {
            name.rpartition("/")[2]: email.parser.Parser().parsestr(wheel.read(name).decode())
            for name in wheel.namelist()
            if name.endswith((".dist-info/METADATA", ".dist-info/WHEEL"))
        }
        if set(headers) != {"METADATA", "WHEEL"}:
            raise MlaotError(f"{path} is no wheel: expected METADATA and WHEEL in its .dist-info")
        metadata, tags = headers["METADATA"], headers["WHEEL"].get_all("Tag", [])
        return {
            "wheel": path.name,
            "bytes": path.stat().st_size,
            "tags": tags,
            "metadata": {key: ", ".join(metadata.get_all(key, [])) for key in dict.fromkeys(metadata.keys())},
            "files": [
                {"path": entry.filename, "bytes": entry.file_size, "crc": f"{entry.CRC:08x}"}
                for entry in wheel.infolist()
                if not entry.is_dir()
            ],
        }
