"""Pictures of a run's learning curves."""

import csv

import pytest

from launch.outputs import plots


def drawn(tmp_path, monkeypatch, rows):
    """Title of each panel -> its lines, of the curves of these rows."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    with open(tmp_path / "metrics.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    plots.draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
    return {axes.get_title(): axes.lines for axes in figures[0].axes}


def test_hetero_ssfl_has_a_panel_of_its_similarity(tmp_path, monkeypatch):
    rows = [{"round": k, "loss": 2.0 / k, "cka": 0.1 * k} for k in (1, 2, 3)]
    panels = drawn(tmp_path, monkeypatch, rows)
    assert list(panels) == ["loss", "CKA with the mean kernel"]
    (line,) = panels["CKA with the mean kernel"]
    assert line.get_xdata().tolist() == [1, 2, 3]
    assert line.get_ydata().tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_what_was_not_logged_has_no_panel(tmp_path, monkeypatch):
    monitored = {"effective_rank": 3.0, "knn_accuracy": 0.5, "knn_balanced_accuracy": 0.4}
    rows = [{"round": 1, "loss": 2.0, **dict.fromkeys(monitored, "")}]
    assert list(drawn(tmp_path, monkeypatch, rows)) == ["loss"]
    panels = drawn(tmp_path, monkeypatch, [{"round": 1, "loss": 2.0, **monitored}])
    assert list(panels) == [
        "loss", "effective rank of the encodings", "kNN on training images",
    ]  # fmt: skip
    assert len(panels["kNN on training images"]) == 2


def test_a_run_without_rounds_has_an_empty_panel(tmp_path, monkeypatch):
    assert {title: len(lines) for title, lines in drawn(
        tmp_path, monkeypatch, [{"round": 1, "loss": ""}]
    ).items()} == {"loss": 0}  # fmt: skip
