"""What the bill of materials takes from [project]."""

from __future__ import annotations

from typing import Any

import pytest

from mlaot.build.sbom import about_project


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"version": "1.0"}, {"version": "1.0", "purl": "pkg:pypi/my-digits@1.0"}),
        ({"dynamic": ["version"]}, {"purl": "pkg:pypi/my-digits"}),
        ({"license": "MIT"}, {"purl": "pkg:pypi/my-digits", "licenses": [{"expression": "MIT"}]}),
        ({"license": {"text": "mine"}}, {"purl": "pkg:pypi/my-digits", "licenses": [{"license": {"name": "mine"}}]}),
        ({"license": {"file": "L"}}, {"purl": "pkg:pypi/my-digits", "licenses": [{"license": {"name": "L"}}]}),
    ],
)
def test_about_project(table: dict[str, Any], said: dict[str, Any]) -> None:
    assert about_project({"name": "My_Digits", **table}) == {"name": "My_Digits", **said}
