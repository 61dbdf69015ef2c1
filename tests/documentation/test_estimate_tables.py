"""The table of what the paper's scale would take: figures follow from the measured rounds."""

import pytest

from launch.studies import catalog
from launch.studies.engine import estimates
from tff_ssl.reporting.experiment import Cell, Experiment

_COMMON = (
    "--dataset=cifar10", "--algorithm=fedu", "--num_clients=5", "--clients_per_round=5",
    "--hparam=local_epochs=5", "--encoder=tiny",
)  # fmt: skip
CELLS = (
    Cell("short", "pretrain", (*_COMMON, "--rounds=100")),
    Cell("long", "pretrain", (*_COMMON, "--rounds=300")),
    Cell("larger", "pretrain", (*_COMMON, "--rounds=100", "--encoder=small")),
)


@pytest.fixture
def row(project_root, monkeypatch):
    """A function that gives the figures of an experiment for measured rows, by their keys."""
    monkeypatch.syspath_prepend(str(project_root / "docs" / "extensions"))
    import estimate_tables

    def build(scale, dataset, rounds):
        assert scale == "paper"
        return Experiment("toy", "Toy", CELLS, (), ())

    def figures(rows):
        monkeypatch.setattr(catalog, "EXPERIMENTS", {"toy": (build, "A toy.")})
        monkeypatch.setattr(estimate_tables, "_measured", lambda: ("", rows))
        *_, line, _ = estimate_tables.paper_scale()
        return [part.strip() for part in line.strip("|").split("|")]

    return figures


def measured(seconds):
    return {"cell": "", "peak_rss_mb": 1000 + seconds, "round_seconds": seconds,
            "round_images": 100}  # fmt: skip


def test_figures_follow_from_the_measured_rounds(row):
    tiny, small = estimates.groups_of(CELLS)
    found = row({tiny: measured(1), small: measured(4)})
    # 25 million images and epochs take 69.4 hours at 10 ms; the cells take 1, 3 and 4 times that.
    assert found == [
        "`toy`", "3", "1,004", "10.0 to 40.0", "25,000,000", "278", "556",
    ]  # fmt: skip


def test_cells_that_were_not_measured_or_failed_are_counted(row):
    tiny, small = estimates.groups_of(CELLS)
    assert row({small: measured(4)})[1:] == [
        "1 of 3", "1,004", "40.0", "25,000,000", "278", "at least 278",
    ]  # fmt: skip
    assert row({tiny: {"cell": "", "failed": "out of memory"}})[1:] == ["0 of 3", *["-"] * 5]
