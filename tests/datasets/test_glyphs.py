"""Names of classes and runs in pictures: scripts without a font, dollars, and underscores."""

import pathlib
import warnings

import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from datasets import describe, glyphs

# A private character, which no font has, one of DejaVu Sans, and one that only another font has.
NOWHERE, EVERYWHERE = "\uf8aa", "\u00e4"


def legend_of(*names):
    figure = Figure()
    describe.explain_colours(figure, figure.subplots(), describe.class_colours(len(names)), names)
    return figure, lambda: [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.fixture
def fonts(monkeypatch):
    """Fonts of Matplotlib alone, as on a computer that has no others."""
    own = pathlib.Path(font_manager.findfont(font_manager.FontProperties())).resolve().parent
    fonts = font_manager.fontManager.ttflist
    entries = [e for e in fonts if own in pathlib.Path(e.fname).resolve().parents]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)


def test_a_character_of_no_font_becomes_an_escape(fonts, tmp_path):
    figure, shown = legend_of(f"K{EVERYWHERE}fer", f"cat {NOWHERE}")
    assert not glyphs.prepare(figure)
    assert shown() == ["Käfer", r"cat \uf8aa"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "legend.png")
    assert glyphs.prepare(figure)


def test_names_can_be_left_to_the_fonts_of_a_browser(fonts):
    figure, shown = legend_of(NOWHERE, "cat \udce4")  # The second is a byte that is no text.
    assert not glyphs.prepare(figure, escape=False)
    assert shown() == [NOWHERE, r"cat \udce4"]


def test_another_font_that_has_the_character_is_used(fonts, tmp_path):
    # DejaVu Sans lacks the letter; Matplotlib comes with a font that has it.
    letter = "\ue010"
    assert any(letter in glyphs._characters(e.fname) for e in font_manager.fontManager.ttflist)
    figure, shown = legend_of(letter)
    assert glyphs.prepare(figure)
    assert shown() == [letter]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "legend.png")


def test_dollars_and_underscores_are_shown(tmp_path):
    figure, shown = legend_of("$x", r"a$\frac$", "_hidden", "US$")
    assert shown()[2] == " _hidden"  # Matplotlib leaves out `_hidden`.
    glyphs.prepare(figure)
    figure.savefig(tmp_path / "legend.png")  # Matplotlib would raise on a wrong formula.


def test_a_class_name_in_another_script_is_in_the_page(fonts):
    from launch.pages import charts

    record = {
        "class_names": [f"cat{NOWHERE}"], "clients": 1,
        "shown": [{"client": 0, "size": 2, "counts": {"0": 2}}],
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = charts.partition_chart(record)
    assert f"cat{NOWHERE}" in picture.content.decode()
