"""README: its table of algorithms, and the papers to cite."""

import re

from tff_ssl.algorithms import registry


def test_the_table_of_algorithms_is_the_registrys(project_root):
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
    report = (project_root / "measured" / "digits_defaults-cpu" / "report.md").read_text()
    for column, labels in ((2, "one label"), (3, "five labels")):
        (table,) = re.findall(rf"## Linear probe, {labels} a class\n(.*?)\n## ", report, re.DOTALL)
        measured = dict(re.findall(r"^\| (.*) \| ([\d.]+ ± [\d.]+) \|$", table, re.MULTILINE))
        for name, shown in cells.items():
            untrained = measured[f"{name}, untrained"].split()[0]
            assert shown[column] == f"{measured[name]}, {untrained}"


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
