"""Pictures of a report: their number, and the figures in them."""

import io
import math

import numpy as np
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


FIRST, SECOND, PUBLISHED = "#1f77b4", "#ff7f0e", "#8c564b"


def test_each_row_has_a_line_and_published_figures_have_a_panel():
    measured_only = table(("1", "4"), {})
    published_too = table(("1", "4"), {"a": (50.0, "failed"), "b": (52.6,)})
    narrow, wide = (pictures.draw_table(t, values(t)) for t in (measured_only, published_too))
    assert pixels(wide).shape[1] > pixels(narrow).shape[1]
    assert has_color(narrow, FIRST)
    assert has_color(narrow, SECOND)


def test_one_column_is_drawn_as_dots():
    measured_only, published_too = table(("figure",), {}), table(("figure",), {"a": (33.0,)})
    assert not has_color(pictures.draw_table(measured_only, values(measured_only)), PUBLISHED)
    assert has_color(pictures.draw_table(published_too, values(published_too)), PUBLISHED)


def test_too_few_figures_make_no_picture():
    some = table(("1", "4"), {})
    assert pictures.draw_table(some, values(some, b=math.nan)) is None
    assert pictures.draw_against(some, values(some), some, values(some, b=math.nan)) is None
    assert pictures.draw_curves({"a": [(1, 0.5)], "b": []}) is None


def test_curves_against_costs_have_a_panel_for_each_cost_and_a_band_over_seeds():
    seed = {"accuracy": [0.4, 0.6], "time": [10.0, 20.0], "samples": [3.0, 9.0]}
    faster = {**seed, "time": [0.1, 0.2]}
    costs = {"simulated time": "time", "samples": "samples"}
    narrow = pictures.draw_curves_against({"a": [seed], "b": [faster]}, {"samples": "samples"})
    wide = pictures.draw_curves_against({"a": [seed], "b": [faster]}, costs)
    assert pixels(wide).shape[1] > pixels(narrow).shape[1] + 300
    assert has_color(wide, FIRST)
    assert has_color(wide, SECOND)
    spread = {**seed, "accuracy": [0.5, 0.9]}
    assert pictures.draw_curves_against({"a": [seed, spread], "b": [faster]}, costs) != wide
    assert pictures.draw_curves_against({"a": [seed], "b": []}, costs) is None
    assert pictures.draw_curves_against({}, {}) is None


def test_cost_against_gain_and_curves():
    some = table(("bytes",), {})
    assert has_color(pictures.draw_against(some, values(some), some, values(some)), SECOND)
    # The colour of a line does not depend on whether the others have points yet.
    assert has_color(pictures.draw_curves({"a": [], "b": [(1, 0.5), (2, 0.6)]}), SECOND)
