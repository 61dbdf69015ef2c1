"""The frame of all pages: self-contained, escaped, with a contents list that works."""

import base64
import html.parser
import re

import pytest

from tests import browser
from tff_ssl.reporting.page import Page, Photo, Picture, data_address

PNG, JPEG, SVG = b"\x89PNG\r\n", b"\xff\xd8\xff\xe0", b"<?xml version='1.0'?><svg/>"
_VOID = {"meta", "img", "br", "link"}


class Reader(html.parser.HTMLParser):
    """Checks that tags are closed in order, and collects attributes and texts."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.addresses, self.texts, self.meta = [], [], [], [], {}

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "id" in values:
            self.ids.append(values["id"])
        self.addresses += [values[name] for name in ("href", "src") if name in values]
        if tag == "meta" and "name" in values:
            self.meta[values["name"]] = values["content"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(page):
    reader = Reader()
    reader.feed(page.render())
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture
def page():
    page = Page("A <title> & more")
    page.add_paragraph("Lead </p><script>alert(1)</script>", "note")
    page.add_section("Results, 5 labels")
    page.add_grid([["row", "value"], ["a < b", "1 & 2"]], "words")
    page.add_pictures([Picture(SVG, 'says "x"', "caption <b>")], "one")
    page.add_section("Results, 5 labels")
    page.add_photos([[Photo(PNG, "0", "first"), Photo(JPEG, "1", "near")]], "rows")
    page.add_command("Do it.", "run --name='a b' && next")
    page.add_folded("All", [["flag", "value"], ["--x", "<none>"]])
    page.add_list([("claim", "(table)")])
    page.add_verdict("Holds: 1 of 1", "yes")
    page.add_heading("inside")
    return page


def test_a_page_is_well_formed_and_fits_phones(page):
    reader = read(page)
    assert reader.meta["viewport"] == "width=device-width, initial-scale=1"
    assert "prefers-color-scheme:dark" in page.render()


def test_a_page_needs_no_other_file(page):
    for address in read(page).addresses:
        assert address.startswith(("#", "data:image/"))
    assert not re.search(r"url\(|@import|https?:", page.render())


def test_the_contents_list_names_each_section_and_leads_to_it(page):
    reader = read(page)
    anchors = [address[1:] for address in reader.addresses if address.startswith("#")]
    assert anchors == reader.ids == ["results-5-labels", "results-5-labels-1"]


def test_texts_are_escaped(page):
    texts = "".join(read(page).texts)
    for text in ("A <title> & more", "</p><script>alert(1)</script>", "a < b", "1 & 2",
                 "caption <b>", "run --name='a b' && next", "<none>"):  # fmt: skip
        assert text in texts
    assert "<script>" not in page.render()
    assert 'alt="says &#34;x&#34;"' in page.render()


@pytest.mark.parametrize(("content", "kind"), [(PNG, "png"), (JPEG, "jpeg"), (SVG, "svg+xml")])
def test_pictures_are_inside_the_page(content, kind):
    address = data_address(content)
    start = f"data:image/{kind};base64,"
    assert address.startswith(start)
    assert base64.b64decode(address.removeprefix(start)) == content


def test_the_check_of_the_layout_finds_what_overflows(tmp_path):
    wide = tmp_path / "wide.html"
    wide.write_text(
        '<!doctype html><p style="font-size:9px">small</p>'
        '<div style="width:500px">wide</div><img src="missing.png">'
    )
    found = browser.measures(wide)
    assert found[390]["overflow"] > 100
    assert found[390]["wide"] == ["DIV wide"]
    assert (found[1400]["overflow"], found[1400]["wide"]) == (0, [])
    assert (found[390]["images"], found[390]["smallest"]) == (1, 9)
