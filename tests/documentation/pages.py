"""The pages of the documentation, and the code blocks in them."""

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent.parent


class Block(NamedTuple):
    """A fenced block of code.

    Attributes:
      page: Path of the page from the root.
      language: Word behind the fence; empty for none.
      text: Content.
    """

    page: str
    language: str
    text: str


def pages() -> list[pathlib.Path]:
    """README, the pages of `docs/`, and the other documents that have commands."""
    written = [path for path in (ROOT / "docs").rglob("*.md") if not _is_generated(path)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(written)]


def _is_generated(path: pathlib.Path) -> bool:
    return {"generated", "learn"} & set(path.relative_to(ROOT / "docs").parts) != set()


def blocks(language: str | None = None) -> list[Block]:
    """All code blocks of all pages, or those in a language; directives of Sphinx are none."""
    found = []
    for path in pages():
        for word, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", path.read_text(), re.M | re.S):
            if not word.startswith("{"):
                found.append(Block(str(path.relative_to(ROOT)), word, text))
    return [block for block in found if language is None or block.language == language]


def commands() -> list[tuple[str, str]]:
    """Pages and commands: lines of all bash blocks, whose comments and continuations are joined."""
    found = []
    for block in blocks("bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            line = re.sub(r"(^|\s)#.*$", "", line).strip()
            found += [(block.page, part.strip()) for part in line.split("&&") if part.strip()]
    return found
