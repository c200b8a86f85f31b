"""What the site changes of the pages, which are also read as files: links out of docs, and the names of files.

README.md and others of its folder become pages, and other files that a page links to are served as text.
``<!-- file: model.py -->`` in front of a block, by which tests write that file, becomes the title of the block. Blocks
in a row that each have a line in bold above become tabs. A head of a table that says nothing is no head.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {f"{name}.md": f"{name.lower()}.md" for name in ("README", "CHANGELOG", "VERSIONS", "SECURITY", "CONTRIBUTING")}
LINK = re.compile(r"(?<=\]\()(?!https?://)([^)#\s]+)")
NAMED = re.compile(r"^<!-- file: (?P<name>.+) -->\n```(?P<language>\w+)$", re.MULTILINE)
TAB = r"\*\*[^*\n]+\*\*\n\n```.*?\n```\n"
TABS = re.compile(rf"^{TAB}(?:\n{TAB})+", re.MULTILINE | re.DOTALL)
EMPTY_HEAD = re.compile(r"<th([^>]*)></th>")
NOTE = re.compile(r"^<!-- .* -->\n(?=```)", re.MULTILINE)


def place(name: str) -> str:
    """Return where the site has a file of the repository."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return PAGES.get(name) or f"sources/{name.removesuffix('.txt')}.txt"


def folder_of(file: File) -> PurePosixPath:
    """Return the folder that holds a page, which its links start from, within the repository."""
    return PurePosixPath("" if file.src_uri in PAGES.values() else "docs")


def target(folder: PurePosixPath, link: str) -> str | None:
    """Return the file of the repository that a link leads to, if it is one."""
    name = normpath(folder / link)
    return name if (ROOT / name).is_file() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs, and the files that pages link to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for file in list(files.documentation_pages()):
        for link in LINK.findall(file.content_string):
            name = target(folder_of(file), link)
            if name and not files.get_file_from_path(place(name)):
                files.append(File.generated(config, place(name), abs_src_path=str(ROOT / name)))
    return files


def tabs(blocks: re.Match[str]) -> str:
    """Return blocks as tabs, which the extension pymdownx.tabbed knows by their indentation."""
    lines = (f"    {line}" if line.strip() else "" for line in blocks[0].splitlines())
    return re.sub(r"^    \*\*([^*\n]+)\*\*$", r'=== "\1"', "\n".join(lines) + "\n", flags=re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the links and the fences of a page."""

    def moved(link: re.Match[str]) -> str:
        name = target(folder_of(page.file), link[0])
        return place(name) if name else link[0]

    named = NAMED.sub(r'```\g<language> title="\g<name>"', LINK.sub(moved, markdown))
    return TABS.sub(tabs, NOTE.sub("", named))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make plain cells of heads without a text, which screen readers would announce."""
    return EMPTY_HEAD.sub(r"<td\1></td>", html)
