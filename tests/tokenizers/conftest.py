"""The compiled tokenizers, and those whose files and answers are stored."""

from __future__ import annotations

import ctypes

import pytest

from .compiled import library


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(tmp_path_factory.mktemp("tokenizers"), "-O1")
