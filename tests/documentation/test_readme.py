"""README: its length, its table of algorithms, and the files that it names."""

import re

from tff_ssl.algorithms import registry


def test_it_is_short(project_root):
    assert len((project_root / "README.md").read_text().splitlines()) <= 150


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
        assert "](https://" in cells[name][1] or "paper" in cells[name][1]
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))
    import experiments

    for name, one, untrained_one, five, untrained_five in experiments.default_rows(list(cells))[1:]:
        shown = cells[name.strip("`")]
        assert shown[2:] == [f"{one}, {untrained_one}", f"{five}, {untrained_five}"]


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
