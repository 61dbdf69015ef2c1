"""The learning curves of a run."""

import csv

import numpy as np
import pytest

from launch.outputs import plots


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws the curves of rows of metrics: the panels, as (axis, x and y of their first line)."""

    def draw(rows):
        figures = []
        monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
        with open(tmp_path / "metrics.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        plots.draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
        (figure,) = figures
        lines = [axes.lines[0].get_xydata().tolist() if axes.lines else [] for axes in figure.axes]
        return [(axes.get_xlabel(), *line) for axes, line in zip(figure.axes, lines, strict=True)]

    return draw


def _rows(**costs):
    return [
        {"round": r, "loss": 3 - r, "knn_accuracy": "" if r % 2 else r / 10}
        | {name: values[r - 1] for name, values in costs.items()}
        for r in (1, 2, 3, 4)
    ]


def test_the_monitor_is_drawn_against_the_sums_of_costs_over_all_rounds(drawn):
    *over_rounds, time, samples = drawn(
        _rows(simulated_time=(5.0, 3.0, 1.0, 2.0), examples_trained=(70, 30, 10, 20))
    )
    assert [label for label, *_ in over_rounds] == ["round"] * 4
    assert time == ("simulated time", [8, 0.2], [11, 0.4])
    assert samples == ("samples (images x epochs)", [100, 0.2], [130, 0.4])


def test_a_run_with_a_server_has_panels_over_rounds_alone(drawn):
    loss, *_, monitor = panels = drawn(_rows())
    assert len(panels) == 4
    np.testing.assert_array_equal(loss[1:], [[r, 3 - r] for r in (1, 2, 3, 4)])
    assert monitor == ("round", [2, 0.2], [4, 0.4])
