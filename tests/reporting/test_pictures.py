"""Pictures of a report: their number, and the figures in them."""

import io
import math

import numpy as np
import pytest
from matplotlib.image import imread

from tff_ssl.reporting import pictures
from tff_ssl.reporting.experiment import Table
from tff_ssl.reporting.measured import Selector, Value

LINEAR = Selector("linear", 500)


def table(columns, published):
    return Table("T", LINEAR, columns, {"a": ("x",) * len(columns), "b": ("y",)}, published)


def values(shown, b=0.4):
    row_a = {
        ("a", column): Value(0.1 + 0.1 * i, 0.01, 3, 0) for i, column in enumerate(shown.columns)
    }
    return row_a | {("b", column): Value(b, 0.02, 3, 0) for column in shown.columns}


def pixels(png):
    return imread(io.BytesIO(png), "png")


def has_color(png, color):
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return bool((np.abs(pixels(png)[..., :3] - rgb).max(axis=-1) < 0.02).any())


FIRST, SECOND = "#1f77b4", "#ff7f0e"
STYLES = {"a": {"color": FIRST, "linestyle": "-"}, "b": {"color": SECOND, "linestyle": "--"}}


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, which are not rendered."""
    drawn = []
    monkeypatch.setattr(pictures, "_png", lambda figure: drawn.append(figure) or b"")
    return drawn


def test_each_row_has_a_line_and_published_figures_have_a_panel():
    measured_only = table(("1", "4"), {})
    published_too = table(("1", "4"), {"a": (50.0, "failed"), "b": (52.6,)})
    narrow, wide = (
        pictures.draw_table(t, values(t), STYLES) for t in (measured_only, published_too)
    )
    assert pixels(wide).shape[1] > pixels(narrow).shape[1]
    assert has_color(narrow, FIRST)
    assert has_color(narrow, SECOND)


def test_measured_and_published_figures_have_one_axis(figures):
    both = table(("1", "4"), {"a": (50.0, 80.0), "b": (52.6,)})
    pictures.draw_table(both, values(both), STYLES)
    measured, published = figures[0].axes
    assert measured.get_ylim() == published.get_ylim()
    low, high = measured.get_ylim()
    assert low < 10 < 80 < high
    # A row has its colour in both panels.
    colours = [[line.get_color() for line in axes.lines[::3]] for axes in (measured, published)]
    assert colours[0][0] == colours[1][0] == FIRST


def test_one_column_is_drawn_as_dots(figures):
    measured_only, published_too = table(("figure",), {}), table(("figure",), {"a": (33.0,)})
    for some in (measured_only, published_too):
        pictures.draw_table(some, values(some), STYLES)
    diamonds = [[line for line in figure.axes[0].lines if line.get_marker() == "D"]
                for figure in figures]  # fmt: skip
    assert diamonds[0] == []
    published, _ = diamonds[1]  # And one in the legend.
    assert published.get_color() == FIRST
    assert published.get_xdata() == [33.0]


@pytest.mark.parametrize("columns", [("figure",), ("1", "4")])
def test_raw_pixels_are_a_dotted_line(figures, columns):
    some = table(columns, {})
    bound = {column: Value(0.25 + 0.1 * i, 0.0, 3, 0) for i, column in enumerate(columns)}
    pictures.draw_table(some, values(some), STYLES, bound)
    pictures.draw_table(some, values(some), STYLES)
    with_pixels, without = (
        [line for line in figure.axes[0].lines if line.get_linestyle() == ":"] for figure in figures
    )
    (line,) = with_pixels
    drawn = line.get_ydata() if len(columns) > 1 else line.get_xdata()[:1]
    np.testing.assert_allclose(drawn, [25, 35][: len(columns)])
    legends = [*figures[0].legends, *filter(None, [figures[0].axes[0].get_legend()])]
    assert "raw pixels" in {text.get_text() for legend in legends for text in legend.get_texts()}
    assert without == []


def test_too_few_figures_make_no_picture():
    some = table(("1", "4"), {})
    none = values(some, b=math.nan)
    assert pictures.draw_table(some, none, STYLES) is None
    assert pictures.draw_against(some, values(some), some, none, STYLES) is None
    assert pictures.draw_curves({"": [("a", [(1, 0.5)]), ("b", [])]}, STYLES) is None


def test_curves_against_costs_have_a_panel_for_each_cost_and_a_band_over_seeds():
    seed = {"accuracy": [0.4, 0.6], "time": [10.0, 20.0], "samples": [3.0, 9.0]}
    faster = {**seed, "time": [0.1, 0.2]}
    costs = {"simulated time": "time", "samples": "samples"}
    both = {"a": [seed], "b": [faster]}
    narrow = pictures.draw_curves_against(both, {"samples": "samples"}, STYLES)
    wide = pictures.draw_curves_against(both, costs, STYLES)
    assert pixels(wide).shape[1] > pixels(narrow).shape[1] + 300
    assert has_color(wide, FIRST)
    assert has_color(wide, SECOND)
    spread = {**seed, "accuracy": [0.5, 0.9]}
    banded = both | {"a": [seed, spread]}
    assert pictures.draw_curves_against(banded, costs, STYLES) != wide
    assert pictures.draw_curves_against({"a": [seed], "b": []}, costs, STYLES) is None
    assert pictures.draw_curves_against({}, {}, STYLES) is None


@pytest.mark.parametrize(
    ("most", "labels"),
    [(90_000, ["30,000", "50,000"]), (800_000, ["30,000", "100,000", "300,000"])],
)
def test_costs_have_few_and_plain_labels(figures, most, labels):
    seed = {"accuracy": [0.4, 0.6], "samples": [25_000.0, most]}
    pictures.draw_curves_against({"a": [seed], "b": [seed]}, {"samples": "samples"}, STYLES)
    figures[0].draw_without_rendering()
    axis = figures[0].axes[0].xaxis
    low, high = axis.get_view_interval()
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert [tick.label1.get_text() for tick in ticks] == labels
    assert {tick.label1.get_text() for tick in axis.get_minor_ticks()} == {""}


def test_cost_against_gain():
    some = table(("bytes",), {})
    assert has_color(pictures.draw_against(some, values(some), some, values(some), STYLES), SECOND)


def test_the_legend_names_rows_that_the_last_panel_lacks(figures):
    some = table(("bytes", "seconds"), {})
    known = values(some) | {("b", "seconds"): Value(math.nan, 0.0, 0, 0)}
    pictures.draw_against(some, known, some, known, STYLES)
    legend = figures[0].axes[-1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_the_legend_of_many_methods_is_within_the_figure(figures):
    many = {f"method {k}": STYLES["a"] for k in range(30)}
    pictures.draw_curves({"": [(name, [(1, 0.5), (2, 0.6)]) for name in many]}, many)
    figure = figures[0]
    figure.draw_without_rendering()
    low, high = figure.legends[0].get_window_extent().intervaly
    assert 0 <= low < high <= figure.bbox.height


def test_curves_have_a_panel_for_each_setting_with_lines(figures):
    line = [(1, 0.5), (2, 0.6)]
    panels = {"IID": [("a", []), ("b", line)], "none": [("a", line[:1])], "non-IID": [("a", line)]}
    pictures.draw_curves(panels, STYLES)
    shown = [axes for axes in figures[0].axes if axes.axison]
    assert [axes.get_title() for axes in shown] == ["IID", "non-IID"]
    # The colour of a line does not depend on whether the others have points yet.
    assert [[line.get_color() for line in axes.lines] for axes in shown] == [[SECOND], [FIRST]]
