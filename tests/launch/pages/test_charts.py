"""Charts of run pages: what they draw, and that nothing covers anything else."""

import itertools
import warnings

import matplotlib.colors
import numpy as np
import pytest

from datasets import describe
from launch.pages import charts
from tests.launch.pages.run_folders import entry


@pytest.fixture
def drawn(monkeypatch):
    """The figures of the charts that a test draws, laid out."""
    figures = []

    def keep(figure, *_):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Matplotlib warns of axes that have no room.
            figure.draw_without_rendering()
        figures.append(figure)

    monkeypatch.setattr(charts, "_picture", keep)
    return figures


def record(classes, letters, shown=6):
    """A partition: class k has k + 1 images of each shown client, and one has no label."""
    counts = {str(k): k + 1 for k in range(classes)}
    client = {"size": sum(counts.values()) + 1, "counts": counts}
    return {
        "class_names": [f"{k:04}".ljust(letters, "w") for k in range(classes)],
        "clients": shown,
        "shown": [{"client": k, **client} for k in range(shown)],
    }


def boxes(artists):
    return [artist.get_window_extent() for artist in artists]


def test_dollars_in_names_are_no_formulas():
    elsewhere = {"pretrained_on": "digits", "data_dir": r"/images/a$\frac$"}
    assert charts.probe_charts([entry(1, **elsewhere)])
    labels = np.zeros(3, np.int32)
    assert charts.map_charts({r"run $\frac$": np.zeros((3, 2))}, labels, ("a",))


def test_bars_of_all_baselines_neither_overlap_nor_leave_the_picture(drawn):
    entries = [entry(1), entry(5)]
    for one in entries:
        scores = one["baselines"]["raw_pixels"]
        one["baselines"] |= {"pretrained_encoder": scores, "imagenet_encoder": scores}
    charts.probe_charts(entries)
    (figure,) = drawn
    (axes,) = figure.axes
    edges = sorted((bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches)
    assert len(edges) == 2 * 5
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(edges))
    # The end of the first group is farther from the second than bars are from each other.
    gaps = [start - end for (_, end), (start, _) in itertools.pairwise(edges)]
    assert gaps[4] > 2 * max(gaps[:4])
    (legend,) = boxes(figure.legends)
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.x1


@pytest.mark.parametrize(("classes", "letters"), [(12, 22), (20, 15), (20, 300)])
def test_the_legend_of_a_partition_is_below_its_bars(drawn, classes, letters):
    charts.partition_chart(record(classes, letters))
    (figure,) = drawn
    (legend,), (axes,) = boxes(figure.legends), figure.axes
    assert legend.y0 >= 0
    assert legend.y1 <= axes.get_tightbbox().y0
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.x1
    row = axes.get_window_extent().height / 6
    assert row > 0.12 * figure.dpi
    assert len(figure.legends[0].get_texts()) == classes + 1


def test_a_client_of_a_partition_is_one_collection_with_a_colour_for_each_class(drawn):
    charts.partition_chart(record(30, 5, shown=2))
    (axes,) = drawn[0].axes
    assert not axes.patches
    for row, bars in enumerate(axes.collections):
        places = [path.get_extents() for path in bars.get_paths()]
        assert [p.width for p in places] == pytest.approx([*range(1, 31), 1])
        assert [p.x0 for p in places] == pytest.approx(np.cumsum([0, *range(1, 31)]))
        assert all(p.y0 < row < p.y1 for p in places)
        colours = [*describe.class_colours(30), matplotlib.colors.to_rgba("#cccccc")]
        np.testing.assert_allclose(bars.get_facecolors(), colours)
    assert len(axes.collections) == 2


def test_the_chart_of_many_classes_is_small():
    assert len(charts.partition_chart(record(1000, 8, shown=24)).content) < 500_000


def test_of_results_that_measure_the_same_the_first_is_shown():
    other = {"dataset": "npz", "pretrained_on": "npz", "data_dir": "/images/b.npz"}
    results = [entry(1, 0.8), entry(5), {"protocol": "x"}, entry(1, 0.7), entry(1, 0.6, **other)]
    found = charts.results_by_protocol(results)
    assert {name: len(group) for name, group in found.items()} == {
        "linear": 2, "linear on npz b.npz": 1,
    }  # fmt: skip
    assert found["linear"][0]["accuracy"] == 0.8
