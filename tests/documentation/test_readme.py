"""README: its table of algorithms, the count of claims, and its Python lines."""

import ast
import re

import pytest

import tff_ssl
from tests.documentation.pages import blocks
from tff_ssl.algorithms import registry


def test_the_table_of_algorithms_is_the_registrys(project_root, monkeypatch):
    text = (project_root / "README.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\]\((.*?)\) \| (.*) \|$", text, re.MULTILINE)
    cells = {name: rest.split(" | ") for name, _, rest in rows}
    assert {name: summary for name, (summary, *_) in cells.items()} == {
        name: entry.summary for name, entry in registry.ALGORITHMS.items()
    }
    assert list(cells) == list(registry.ALGORITHMS)
    for name, page, _ in rows:
        assert page == f"docs/algorithms/{name}.md"
        paper = cells[name][1]
        assert re.search(r"\]\(https://(arxiv\.org/abs|doi\.org|openreview\.net/forum)", paper) or (
            "paper" in paper
        )


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_count_of_claims_is_that_of_the_page_of_claims(project_root, monkeypatch, page):
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))
    import claim_tables

    text, total = (project_root / page).read_text(), len(claim_tables.claims())
    assert re.search(rf"[Oo]f the {total} claims that we found in [^,]*, ", text)
    assert claim_tables.count_sentence() in text


@pytest.mark.slow
def test_the_first_program_trains_evaluates_and_saves(tmp_path, monkeypatch, capsys):
    (lines,) = (block.text for block in blocks("python") if block.page == "README.md")
    assert len(lines.splitlines()) < 15
    monkeypatch.chdir(tmp_path)
    exec(compile(lines.replace("rounds=100", "rounds=2"), "README.md", "exec"), {})
    *_, printed = capsys.readouterr().out.splitlines()
    (ten, of_ten), (fifty, of_fifty) = ast.literal_eval(printed)
    assert (ten, fifty) == (10, 50)
    assert 0.2 < of_ten < of_fifty < 1
    assert len(tff_ssl.load_run("my_run").metrics) == 2


def test_the_papers_to_cite_are_the_five(project_root):
    text = (project_root / "CITATION.cff").read_text()
    titles = re.findall(r'^    title: "(.*)"$', text, re.MULTILINE)
    assert len(titles) == 5
    readme = (project_root / "README.md").read_text()
    assert all(title in readme for title in titles)
    sources = [project_root / "pyproject.toml", project_root / "tff_ssl" / "__init__.py"]
    definition = "\n".join(source.read_text() for source in sources)
    version = re.search(r'^(?:__)?version(?:__)? = "(.*)"$', definition, re.M)
    assert f"version: {version[1]}\n" in text
