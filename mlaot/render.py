"""Render templates to text: the only place that knows Jinja.

Templates loop over ready data. Their delimiters are ``@{ }@``, ``@% %@`` and ``@# #@``, which leave C's braces alone. A
wheel of mlaot also contains the templates compiled to Python, since Jinja compiles them more slowly than it renders.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


INCLUDE = re.compile(r'^#include "(runtime/\w+\.[ch])"\n', re.MULTILINE)


@cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment over ``templates/``; an undefined name in a template is an error."""
    import jinja2  # on demand: build hooks that render nothing do without it

    compiled = jinja2.ModuleLoader(compiled_folder(Path(__file__).parent))
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([compiled, jinja2.FunctionLoader(template_text)]),
        variable_start_string="@{",
        variable_end_string="}@",
        block_start_string="@%",
        block_end_string="%@",
        comment_start_string="@#",
        comment_end_string="#@",
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def compiled_folder(package: Path) -> Path:
    """Return the folder of compiled templates in a wheel, which is named for the version of Jinja."""
    import jinja2

    return package / "templates" / f"jinja-{jinja2.__version__}"


def compile_templates(templates: Path, package: Path) -> None:
    """Compile ``templates/`` into the package of a wheel of mlaot, whose build calls this."""
    import jinja2

    source = environment().overlay(loader=jinja2.FileSystemLoader(templates))
    source.compile_templates(compiled_folder(package), zip=None, ignore_errors=False)


def template_names(folder: str) -> list[str]:
    """Return the names of the templates in a folder of ``templates/``."""
    return sorted(path.name for path in (_templates() / folder).iterdir() if path.name.endswith(".j2"))


def template_text(name: str) -> str:
    """Read ``templates/<name>`` from a wheel, an editable install or a checkout."""
    return (_templates() / name).read_text(encoding="utf-8")


def _templates() -> Traversable:
    installed = files("mlaot") / "templates"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "templates"


def render(template: str, /, **context: object) -> str:
    """Render ``templates/<template>`` with ``context``."""
    return environment().get_template(template).render(**context)


def with_runtime(text: str) -> str:
    """Replace the first ``#include`` of each file of ``templates/runtime`` by its text: one C file to compile."""
    included = set()

    def content(include: re.Match[str]) -> str:
        name = include[1]
        if name in included:
            return ""
        included.add(name)
        return INCLUDE.sub(content, template_text(name).replace("#pragma once\n\n", ""))

    return re.sub(r"\n{3,}", "\n\n", INCLUDE.sub(content, text))


def macros(template: str, /, **context: object) -> Any:
    """Return the macros of ``templates/<template>`` as functions that know ``context``."""
    return environment().get_template(template).make_module(context)
