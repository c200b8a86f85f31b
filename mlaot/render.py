"""Program to text: the only place that knows Jinja.

Templates are loops over ready data. Their delimiters are ``@{ }@``, ``@% %@`` and ``@# #@``, so that C's braces stay
C's.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


@cache
def environment() -> jinja2.Environment:
    """The Jinja environment over ``templates/``; an undefined name in a template is an error."""
    import jinja2  # not by build hooks that render nothing

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
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


def template_text(name: str) -> str:
    """The text of ``templates/<name>``, from a wheel, an editable install or a checkout."""
    installed = files("mlaot") / "templates" / name
    if installed.is_file():
        return installed.read_text(encoding="utf-8")
    return (Path(__file__).parent.parent / "templates" / name).read_text(encoding="utf-8")


def render(template: str, /, **context: object) -> str:
    """Render ``templates/<template>`` with ``context``."""
    return environment().get_template(template).render(**context)
