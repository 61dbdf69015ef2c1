"""What was measured, as Markdown: tables, verdicts on claims, and the gallery.

All figures are those of the records in `measured/` and of the experiments' definitions, which have
the papers' ones; none is typed into the pages.
"""

import functools
import pathlib
import shutil
from collections import Counter

import interval_pictures
from markdown_tables import ROOT, table

_MEASURED = ROOT / "measured"
_DEFAULTS, _COMPARISON = "digits_defaults-cpu", "all_methods-cpu"
# Files of `measured/` that have no runs: estimates, and figures whose runs are not kept.
_OTHERS = ("estimates-paper", "noted")
_VERDICTS = ("holds", "does not hold", "not shown")


@functools.cache
def records(name: str):
    """The records of a file of `measured/`."""
    from tff_ssl.reporting.records import read_file

    return read_file(_MEASURED / f"{name}.jsonl")


@functools.cache
def read(name: str):
    """The experiment of a file of `measured/`, with the figures of its tables."""
    from launch.studies import catalog
    from tff_ssl.reporting import report

    identity = records(name).identity
    build, _ = catalog.EXPERIMENTS[identity["experiment"]]
    experiment = build(identity["scale"], identity["dataset"], identity["rounds"])
    return experiment, report.read_values(records(name), experiment)


def names() -> list[str]:
    """Names, without extension, of the files in `measured/` with an experiment's runs."""
    return sorted(path.stem for path in _MEASURED.glob("*.jsonl") if path.stem not in _OTHERS)


def further_rows(name: str, shown):
    """The figures of raw pixels and of ImageNet by row and column, for an experiment's table."""
    from tff_ssl.reporting import references, report

    chosen = report.choose_cells(records(name), read(name)[0])
    return references.values(records(name), shown, references.kept(), chosen)


def bounds(name: str, shown):
    """The figures of raw pixels by column, of a table's own row or of others' runs."""
    from tff_ssl.reporting import references

    own = [row for row, one in shown.selectors.items() if one.baseline == "raw_pixels"]
    if not own:
        return further_rows(name, shown).get(references.ROWS["raw_pixels"], {})
    values = read(name)[1][shown.title]
    return {column: values[own[0], column] for column in shown.columns}


def below_pixels(name: str) -> list[str]:
    """Sentences on the rows whose mean is below raw pixels, for each table of accuracies."""
    experiment, values = read(name)
    lines = []
    for shown in experiment.tables:
        baselines = {row: one.baseline for row, one in shown.selectors.items() if one.baseline}
        for column, bound in bounds(name, shown).items():
            found = {row: values[shown.title].get((row, column)) for row in shown.rows}
            below = [
                f"{row} ({100 * value.mean:.1f})"
                for row, value in found.items()
                if value and row not in baselines and value.mean < bound.mean
            ]
            place = f"{shown.title}, {column}" if len(shown.columns) > 1 else shown.title
            text = f"Below them are {', '.join(below)}." if below else "Nothing is below them."
            lines.append(f"- {place}: raw pixels have {_mean(bound)}. {text}")
    return ["", *lines, ""]


def paired(name: str, row: str) -> list[str]:
    """Differences of the first table's rows from one of them, paired by seed, with intervals."""
    experiment, all_values = read(name)
    shown = experiment.tables[0]
    values = all_values[shown.title]
    others = [
        one for one in shown.rows
        if one != row and not shown.selectors.get(one, shown.selector).baseline
    ]  # fmt: skip
    grid = [[f"points above {row} (95 % interval)", *shown.columns], *([one] for one in others)]
    lines = []
    for column in shown.columns:
        sides: dict[str, list[str]] = {"above": [], "below": []}
        for cells, other in zip(grid[1:], others, strict=True):
            text, side = _difference(shown, values, other, row, column)
            cells.append(text)
            if side:
                sides[side].append(other)
        for side, found_rows in sides.items():
            names = "; ".join(found_rows) or "none"
            lines.append(f"- {column}, the whole interval is {side} {row}: {names}.")
    return [*table(grid), *lines, ""]


def _difference(shown, values, other: str, row: str, column: str) -> tuple[str, str]:
    """How far a row is above another one, and the side on which the whole interval is, or ""."""
    from tff_ssl.reporting import verdicts
    from tff_ssl.reporting.experiment import Contrast

    found = verdicts.estimate(Contrast({(other, column): 1, (row, column): -1}), shown, values)
    if found is None:
        return "not measured", ""
    low, high = found.interval()
    # Without the sign of numbers that are rounded to zero.
    mean, start, end = (round(100 * number, 1) + 0.0 for number in (found.mean, low, high))
    side = "above" if low > 0 else "below" if high < 0 else ""
    return f"{mean:.1f} ({start:.1f} to {end:.1f})", side


def comparison(shown, values, further=None) -> list[list[str]]:
    """A table as rows: measured figures, with the published ones in parentheses."""
    from tff_ssl.reporting import report

    measured = report.measured_grid(shown, values, further)
    published = {row[0]: row[1:] for row in report.published_grid(shown)[1:]}
    header = "in percent" if shown.percent else "counts"
    grid = [[f"{header}: measured{' (published)' if published else ''}", *measured[0][1:]]]
    for name, *cells in measured[1:]:
        others = published.get(name, [])
        others = [*others, *[""] * (len(cells) - len(others))]
        grid.append([name, *(_beside(a, b) for a, b in zip(cells, others, strict=True))])
    for name, cells in published.items():
        if name not in shown.rows:
            grid.append([name, *(_beside("", cell) for cell in cells)])
    return grid


def _beside(measured: str, published: str) -> str:
    return f"{measured} ({published})" if published not in ("", "-") else measured


@functools.cache
def report_rows(name: str) -> list[tuple[str, str, str]]:
    """An experiment's claims: title of the table, statement, verdict."""
    from tff_ssl.reporting import report

    return report.claim_rows(*read(name))


def verdicts(name: str) -> list[tuple[str, str, str]]:
    """Those of the claims that were measured."""
    return [row for row in report_rows(name) if row[2] in _VERDICTS]


def summary(name: str) -> str:
    """A sentence with the number of claims by verdict."""
    counts = Counter(verdict for _, _, verdict in verdicts(name))
    parts = (("holds", "hold"), ("does not hold", "do not hold"), ("not shown", "are not shown"))
    found = ", ".join(f"{counts[verdict]} {words}" for verdict, words in parts)
    return f"Of {sum(counts.values())} claims that were checked, {found}."


def default_rows(names: list[str]) -> list[list[str]]:
    """The default runs of some algorithms, a row each, in percent."""
    experiment, values = read(_DEFAULTS)
    grid = [["`--algorithm`", "one label a class", "untrained", "five labels a class", "untrained"]]
    for name in names:
        row = [f"`{name}`"]
        for shown in experiment.tables:
            for key in (name, f"{name}, untrained"):
                value = values[shown.title][key, shown.columns[0]]
                deviation = f" ± {100 * value.std:.1f}" if key == name else ""
                row.append(f"{100 * value.mean:.1f}{deviation}" if value.seeds else "not measured")
        grid.append(row)
    return grid


def _traffic(name: str) -> str:
    """A sentence on what a client received and sent in a round of the default run."""
    from tff_ssl.reporting.measured import first

    runs = records(_DEFAULTS).of_cell(name)
    down = first(runs, "bytes_down_per_client_and_round")
    up = first(runs, "bytes_up_per_client_and_round")
    if down is None:
        return ""
    return f"A client received {down / 1e6:.2f} MB and sent {up / 1e6:.2f} MB in a round of it."


def gallery(name: str, pictures: pathlib.Path) -> str:
    """An experiment's page in the gallery; writes its pictures to the page's folder.

    It has a picture and a sentence for each claim, the tables, learning curves and partitions.
    """
    from datasets import describe

    experiment, values = read(name)
    tables = {shown.title: shown for shown in experiment.tables}
    lines = [f"# {experiment.title}", "", summary(name)]
    found = [verdict for *_, verdict in report_rows(name)]
    for verdict in _VERDICTS:
        chosen = [c for c, word in zip(experiment.claims, found, strict=True) if word == verdict]
        if chosen:
            lines += ["", f"## Verdict: {verdict}"]
        for claim in chosen:
            checked = (claim, tables[claim.table], values[claim.table])
            sentence, picture = interval_pictures.seen([checked], verdict)
            lines += ["", f'{sentence} (Table "{claim.table}".)', "", picture]
    lines += ["", "## Tables", "", *measured(name)]
    for number, caption in enumerate(_report_pictures(name), 1):
        file = write_picture(name, number, pictures)
        lines += [f"## {caption}", *_image(file, caption), ""] if file else []
    for number, (partition, picture) in enumerate(records(name).partitions.items(), 1):
        path = pictures / f"{name}-partition_{number}.png"
        describe.draw(picture).savefig(path, dpi=120)
        caption = f"Partition {partition}"
        lines += [f"## {caption}", *_image(path.name, caption), ""]
    return "\n".join(lines) + "\n"


def _image(path: str, description: str) -> list[str]:
    return ["", f"```{{image}} {path}", f":alt: {description}", ":loading: lazy", "```"]


def write_gallery(target: pathlib.Path) -> None:
    """Writes the gallery's pages to a folder, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name in names():
        (target / f"{name}.md").write_text(gallery(name, target))


@functools.cache
def _report_pictures(name: str):
    """The pictures of an experiment's report by caption; some may be None."""
    from tff_ssl.reporting import report

    return report.draw_pictures(records(name), *read(name))


def write_picture(name: str, number: int, folder: pathlib.Path) -> str:
    """Writes `picture_NUMBER.png` of a report; returns the file's name, empty without a picture."""
    drawn = list(_report_pictures(name).values())[number - 1]
    if drawn is None:
        return ""
    path = folder / f"{name}-picture_{number}.png"
    path.write_bytes(drawn)
    return path.name


def gallery_index() -> list[str]:
    """A table of the experiments in the gallery, with the number of claims by verdict."""
    grid = [["experiment", *_VERDICTS]]
    for name in names():
        counts = Counter(verdict for _, _, verdict in verdicts(name))
        link = f"[{read(name)[0].title}](generated/{name}.md)"
        grid.append([link, *(str(counts[verdict]) for verdict in _VERDICTS)])
    return table(grid)


def measured(name: str, tables: list[int] | None = None) -> list[str]:
    """The tables of an experiment in `measured/`, or some by number, from 1."""
    experiment, values = read(name)
    lines = []
    for shown in [experiment.tables[n - 1] for n in tables] if tables else experiment.tables:
        grid = comparison(shown, values[shown.title], further_rows(name, shown))
        lines += [f"**{shown.title}**", *table(grid)]
    return [*lines, f"The result of every run is in `measured/{name}.jsonl`.", ""]


def published(name: str, tables: list[int] | None = None) -> list[str]:
    """The paper's tables of an experiment, or some by number, from 1."""
    from launch.studies import catalog
    from tff_ssl.reporting import report

    experiment = catalog.EXPERIMENTS[name][0]("paper", None, None)
    lines = []
    for shown in [experiment.tables[n - 1] for n in tables] if tables else experiment.tables:
        if shown.published:
            lines += [f"**{shown.title}**", *table(report.published_grid(shown))]
    return lines


def default_run(name: str) -> list[str]:
    """The figures of an algorithm's default run on the digits, and those of the comparison."""
    return [
        "The default run on the digits: test accuracy of a linear probe in percent, mean and "
        "deviation over 3 seeds, beside the untrained encoder of the same runs, and raw pixels.",
        *table([*default_rows([name]), _pixel_row()]),
        _below(name),
        _traffic(name),
        "",
        *_compared(name),
    ]


def _compared(name: str) -> list[str]:
    """The figures of an algorithm in the comparison of all methods, beside those of FedAvg."""
    experiment, all_values = read(_COMPARISON)
    shown = experiment.tables[0]
    values = all_values[shown.title]
    # The last cell of a row is no choice of several ones.
    flags = {cell.name: cell.flags for cell in experiment.cells}
    rows = [
        row for row, cells in shown.rows.items()
        if f"--algorithm={name}" in flags.get(cells[-1], ())
        and not shown.selectors.get(row, shown.selector).baseline
    ]  # fmt: skip
    if not rows:
        return []
    grid = [["in percent", *shown.columns]]
    for row in rows:
        grid.append([row, *(_mean(values[row, column]) for column in shown.columns)])
        if row != "FedAvg":
            differences = [
                _difference(shown, values, row, "FedAvg", column)[0] for column in shown.columns
            ]
            grid.append(["points above FedAvg (95 % interval)", *differences])
    pixels = bounds(_COMPARISON, shown)
    grid.append(["raw pixels", *(_mean(pixels[column]) for column in shown.columns)])
    lows = [
        f"{row} with {column}"
        for row in rows
        for column in _columns_below(shown, values, row, pixels)
    ]
    useless = (
        "The mean is below raw pixels, so that nothing useful for such a probe was learned: "
        f"{'; '.join(lows)}."
    )
    return [
        "In the [comparison of all methods](../comparison.md) on CIFAR-10, over 3 seeds, a linear "
        "probe with 5,000 labels has:",
        *table(grid),
        *([useless] if lows else []),
    ]


def _mean(value) -> str:
    if not value.seeds:
        return "not measured"
    return f"{100 * value.mean:.1f} \u00b1 {100 * value.std:.1f}"


def _pixel_row() -> list[str]:
    experiment, _ = read(_DEFAULTS)
    found = [one for shown in experiment.tables for one in bounds(_DEFAULTS, shown).values()]
    one, five = map(_mean, found)
    return ["raw pixels", one, "", five, ""]


def _columns_below(shown, values, row: str, pixels) -> list[str]:
    """The columns of a table in which a row's mean is below that of raw pixels."""
    return [c for c in shown.columns if c in pixels and values[row, c].mean < pixels[c].mean]


def _below(name: str) -> str:
    """A sentence on where the mean of an algorithm's default run is below raw pixels."""
    experiment, values = read(_DEFAULTS)
    places = [
        shown.title.partition(", ")[2]
        for shown in experiment.tables
        for _ in _columns_below(shown, values[shown.title], name, bounds(_DEFAULTS, shown))
    ]
    if not places:
        return ""
    return (
        f"With {' and with '.join(places)} the mean is below raw pixels: this short run on small "
        "images has learned nothing useful for such a probe."
    )


def default_runs() -> list[str]:
    """The figures of all algorithms' default runs, and those of raw pixels."""
    from tff_ssl.algorithms import registry

    grid = default_rows(list(registry.ALGORITHMS))
    return [*table([*grid, _pixel_row()]), *below_pixels(_DEFAULTS)]
