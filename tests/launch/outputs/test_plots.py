"""Pictures of a run's learning curves."""

import csv

import numpy as np
import pytest

from launch.outputs import plots


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws the curves of rows of metrics: a list of its panels' axes."""

    def draw(rows):
        figures = []
        monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
        with open(tmp_path / "metrics.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        plots.draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
        (figure,) = figures
        return figure.axes

    return draw


def test_hetero_ssfl_has_a_panel_of_its_similarity(drawn):
    rows = [{"round": k, "loss": 2.0 / k, "cka": 0.1 * k} for k in (1, 2, 3)]
    loss, similarity = drawn(rows)
    assert (loss.get_title(), similarity.get_title()) == ("loss", "CKA with the mean kernel")
    (line,) = similarity.lines
    np.testing.assert_allclose(line.get_xydata(), [[1, 0.1], [2, 0.2], [3, 0.3]])


def test_what_was_not_logged_has_no_panel(drawn):
    monitored = {"effective_rank": 3.0, "knn_accuracy": 0.5, "knn_balanced_accuracy": 0.4}
    panels = drawn([{"round": 1, "loss": 2.0, **dict.fromkeys(monitored, "")}])
    assert [axes.get_title() for axes in panels] == ["loss"]
    panels = drawn([{"round": 1, "loss": 2.0, **monitored}])
    assert [axes.get_title() for axes in panels] == [
        "loss", "effective rank of the encodings", "kNN on training images",
    ]  # fmt: skip
    assert len(panels[-1].lines) == 2


def test_a_run_without_rounds_has_an_empty_panel(drawn):
    (panel,) = drawn([{"round": 1, "loss": ""}])
    assert panel.get_title() == "loss"
    assert not panel.lines


def _rows(**costs):
    return [
        {"round": r, "loss": 3 - r, "knn_accuracy": "" if r % 2 else r / 10}
        | {name: values[r - 1] for name, values in costs.items()}
        for r in (1, 2, 3, 4)
    ]


def test_the_monitor_is_drawn_against_the_sums_of_costs_over_all_rounds(drawn):
    costs = _rows(simulated_time=(5.0, 3.0, 1.0, 2.0), examples_trained=(70, 30, 10, 20))
    *over_rounds, time, samples = drawn(costs)
    assert [axes.get_xlabel() for axes in over_rounds] == ["round"] * 2
    assert time.get_xlabel() == "simulated time"
    np.testing.assert_allclose(time.lines[0].get_xydata(), [[8, 0.2], [11, 0.4]])
    assert samples.get_xlabel() == "samples (images x epochs)"
    np.testing.assert_allclose(samples.lines[0].get_xydata(), [[100, 0.2], [130, 0.4]])


def test_a_run_with_a_server_has_panels_over_rounds_alone(drawn):
    loss, monitor = drawn(_rows())
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[r, 3 - r] for r in (1, 2, 3, 4)])
    assert monitor.get_xlabel() == "round"
    np.testing.assert_allclose(monitor.lines[0].get_xydata(), [[2, 0.2], [4, 0.4]])


def test_a_single_evaluation_is_drawn_from_the_origin_on(drawn):
    rows = [{"round": r, "loss": -float(r), "knn_accuracy": 0.35 if r == 3 else ""} for r in (1, 3)]
    loss, monitor = drawn(rows)
    assert (monitor.get_xlim()[0], monitor.get_ylim()[0]) == (0, 0)
    assert monitor.get_xlim()[1] > 3.1
    assert 0.37 < monitor.get_ylim()[1] < 0.5
    assert loss.get_xlim()[0] > 0  # A curve has the range of its points,
    (negative,) = drawn(rows[:1])
    assert negative.get_ylim()[0] < -1  # and a negative value stays in view.
