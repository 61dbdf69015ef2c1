"""Tables and cards of the site on a phone: nothing is pushed off the screen."""

import re

import pytest

from tests import browser

_COLUMNS = ("name", "symbol", "default", "meaning")
_ROW = ("client_learning_rate_of_the_run", "", "0.0001", "what_the_service_multiplies_steps_by")


def test_rows_are_stacked_on_a_phone(project_root, tmp_path):
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    row = "".join(f"<td><p>{text}</p></td>" for text in _ROW)
    static = project_root / "docs" / "static"
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="{static}/site.css">'
        f'<script src="{static}/tables.js"></script><article><table class="docutils"><thead>'
        f"<tr>{head}</tr></thead><tbody><tr>{row}</tr></tbody></table></article>"
    )
    measured = browser.measures(page)
    assert {width: found["overflow"] for width, found in measured.items()} == dict.fromkeys(
        browser.WIDTHS, 0
    )
    html = browser.dump(page)
    assert re.findall(r'data-label="(\w+)"', html) == ["default", "meaning"]


def test_the_cards_of_claims_fit_on_a_phone(project_root, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))
    import claim_tables

    markdown_it = pytest.importorskip("markdown_it")
    lines = [line for claim in claim_tables.claims() for line in claim_tables.card(claim)]
    html = markdown_it.MarkdownIt().render("\n".join(lines))
    html = html.replace("<details>", "<details open>")
    page = tmp_path / "page.html"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><link rel="stylesheet" '
        f'href="{project_root}/docs/static/site.css"><article>{html}</article>'
    )
    for width, found in browser.measures(page).items():
        assert (found["overflow"], found["wide"]) == (0, []), width
