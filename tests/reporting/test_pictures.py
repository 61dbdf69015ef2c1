"""Which pictures a report has, and that all figures are in them."""

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


def values(of, b=0.4):
    found = {("a", column): Value(0.1 + 0.1 * i, 0.01, 3, 0) for i, column in enumerate(of.columns)}
    return found | {("b", column): Value(b, 0.02, 3, 0) for column in of.columns}


def pixels(png):
    return imread(io.BytesIO(png), "png")


def has_color(png, color):
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return bool((np.abs(pixels(png)[..., :3] - rgb).max(axis=-1) < 0.02).any())


FIRST, SECOND, PUBLISHED = "#1f77b4", "#ff7f0e", "#8c564b"


def test_a_line_for_each_row_and_a_panel_for_what_is_published():
    alone, beside = table(("1", "4"), {}), table(("1", "4"), {"a": (50.0, "failed"), "b": (52.6,)})
    one, two = (pictures.draw_table(t, values(t)) for t in (alone, beside))
    assert pixels(two).shape[1] > pixels(one).shape[1]
    assert has_color(one, FIRST)
    assert has_color(one, SECOND)


def test_one_column_is_drawn_as_dots():
    alone, beside = table(("figure",), {}), table(("figure",), {"a": (33.0,)})
    assert not has_color(pictures.draw_table(alone, values(alone)), PUBLISHED)
    assert has_color(pictures.draw_table(beside, values(beside)), PUBLISHED)


def test_too_few_figures_make_no_picture():
    some = table(("1", "4"), {})
    assert pictures.draw_table(some, values(some, b=math.nan)) is None
    assert pictures.draw_against(some, values(some), some, values(some, b=math.nan)) is None
    assert pictures.draw_curves({"a": [(1, 0.5)], "b": []}) is None


def test_cost_against_gain_and_curves():
    some = table(("bytes",), {})
    assert has_color(pictures.draw_against(some, values(some), some, values(some)), SECOND)
    # A line has the same colour whatever others are there yet.
    assert has_color(pictures.draw_curves({"a": [], "b": [(1, 0.5), (2, 0.6)]}), SECOND)
