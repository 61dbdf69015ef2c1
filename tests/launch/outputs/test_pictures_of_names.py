"""Dollars in names of encoders and of categories, which would begin formulas."""

import types
from unittest import mock

import numpy as np

from launch.outputs import detection_plots, feature_plots

NAME = r"a$\frac$"


def test_names_of_encoders(tmp_path):
    distances = {"distance": 1.0, "layers": {"kernel": 1.0}}
    pair = {"encoders": [NAME, NAME], "weights": distances, "moving_averages": {"layers": {}}}
    feature_plots.draw_distances([pair], tmp_path / "distances.png")
    points, labels = {NAME: np.eye(3, 2)}, np.arange(3)
    feature_plots.draw_features(points, labels, "abc", tmp_path / "features.png", title=NAME)


def test_names_of_categories(tmp_path):
    truth = types.SimpleNamespace(
        imgToAnns={1: [{"category_id": 7, "bbox": [1, 1, 3, 3]}]},
        annToMask=lambda _: np.zeros((8, 8)),
    )
    pixels = np.zeros((8, 8, 3), np.uint8)
    images = mock.MagicMock(
        category_ids=[7], class_names=[NAME], image_ids=[1], truth=truth, image=lambda _: pixels
    )
    images.__len__.return_value = 1
    path = tmp_path / "detections.png"
    detection_plots.draw_detections(images, {}, path, count=1)
    assert path.stat().st_size > 1000
