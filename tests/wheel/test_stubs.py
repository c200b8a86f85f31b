"""The stub of each module says what the module is: names, arguments, defaults, classes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Site
from .test_contents import MODULES


@pytest.mark.parametrize("name", MODULES)
def test_stub(site: Site, tmp_path: Path, name: str) -> None:
    """By mypy's stubtest."""
    pytest.importorskip("mypy")
    # Before 3.12 no class shows that it is a buffer. Stubs say it all the same (PEP 688).
    allowed = tmp_path / "allowed"
    allowed.write_text(r".*\.Array\.__buffer__" if sys.version_info < (3, 12) else "")
    modules = [module.replace("/", ".") for module in MODULES[name]]
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "--allowlist", str(allowed), *modules]
    folder = str(site(name))
    env = os.environ | {"PYTHONPATH": folder, "MYPYPATH": folder}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
