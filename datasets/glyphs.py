"""Names in pictures: fonts for any script, and characters that Matplotlib takes for its own."""

import functools

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text


def label(name: str) -> str:
    """A name as a label: `$` begins a formula otherwise, and a legend leaves out `_name`."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def prepare(figure: Figure, escape: bool = True) -> bool:
    """Lets a figure show names in any script; whether the installed fonts have all characters.

    Other characters become escapes, such as `\\u732b`, unless `escape` is false. What stands for
    bytes of a file name that are no text is always escaped.
    """
    texts = figure.findobj(Text)
    families, missing = _find_fonts("".join({text.get_text() for text in texts}))
    escaped = missing if escape else {c for c in missing if "\ud800" <= c <= "\udfff"}
    escapes = str.maketrans({c: c.encode("ascii", "backslashreplace").decode() for c in escaped})
    for text in texts:
        if families:
            text.set_fontfamily([*text.get_fontfamily(), *families])
        text.set_text(text.get_text().translate(escapes))
    return not missing


def _find_fonts(text: str) -> tuple[list[str], set[str]]:
    """Fonts for the characters that the default font lacks, and the characters without a font."""
    default = font_manager.findfont(font_manager.FontProperties())
    missing, families = set(text) - _characters(default) - {"\n"}, list[str]()
    for entry in font_manager.fontManager.ttflist if missing else ():
        # This font has a box for every character.
        if not entry.name.startswith("Last Resort") and missing & _characters(entry.fname):
            missing -= _characters(entry.fname)
            families.append(entry.name)
    return families, missing


@functools.cache
def _characters(path: str) -> frozenset[str]:
    """The characters of a font; none if it cannot be read, as those of colour pictures."""
    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()
