"""Histograms and distances against closed forms, and the pictures."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from datasets import describe, partitioners
from datasets.errors import DatasetError


def test_histograms_count_labels_and_skip_missing_ones():
    labels = np.array([0, 2, -1, 2, 1])
    counts = describe.histograms(labels, [np.array([1, 3, 0]), np.array([2, 4])], 4)
    assert counts.tolist() == [[1, 0, 2, 0], [0, 1, 0, 0]]
    with pytest.raises(DatasetError, match="num_classes"):
        describe.histograms(labels, [np.array([0])], 2)


def test_distance_of_equal_clients_is_zero():
    assert describe.earth_movers_distance(np.tile([[3, 1, 4]], (7, 1))) == pytest.approx(0)


@pytest.mark.parametrize(("clients", "per_client"), [(5, 2), (2, 5), (10, 1)])
def test_distance_of_exclusive_classes(clients, per_client):
    # A client has 1/per_client of each of its classes, and the union of all clients has 1/10 of
    # each class, so the distance is 2 (1 - 1/clients).
    counts = np.kron(np.eye(clients, dtype=int), np.full((1, per_client), 7))
    assert describe.earth_movers_distance(counts) == pytest.approx(2 * (1 - 1 / clients))


@pytest.mark.parametrize(
    ("beta", "printed"), [(1.0, 0.002), (0.7, 0.48), (0.5, 0.79), (0.3, 1.12), (0.0, 1.62)]
)
def test_skew_has_the_distances_of_figure_17(beta, printed):
    labels = np.repeat(np.arange(10), 5000)
    clients = partitioners.skew(labels, np.random.default_rng(0), 5, beta)
    distance = describe.earth_movers_distance(describe.histograms(labels, clients, 10))
    assert distance == pytest.approx((1 - beta) * 1.6, abs=1e-9)
    assert distance == pytest.approx(printed, abs=0.025)


@pytest.mark.parametrize(
    ("alpha", "printed"), [(5.0, 0.29), (1.0, 0.77), (0.5, 0.97), (0.1, 1.27), (0.01, 1.57)]
)
def test_dirichlet_per_class_has_the_distances_of_figure_17(alpha, printed):
    # The paper shows one draw for each alpha; draws of CIFAR-10 have a standard deviation of 0.03
    # to 0.09.
    labels = np.repeat(np.arange(10), 5000)
    distances = []
    for seed in range(60):
        clients = partitioners.dirichlet_per_class(labels, np.random.default_rng(seed), 5, alpha)
        counts = describe.histograms(labels, clients, 10)
        distances.append(describe.earth_movers_distance(counts))
    assert np.std(distances) < 0.12
    assert abs(np.mean(distances) - printed) < 1.5 * np.std(distances)


@given(
    hnp.arrays(
        np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(0, 9)
    )
)
def test_distances_are_from_0_to_2_and_only_of_labelled_clients(counts):
    distances = describe.earth_movers_distances(counts)
    assert len(distances) == np.count_nonzero(counts.sum(axis=1))
    assert np.all((distances >= 0) & (distances <= 2 + 1e-12))


def test_nothing_labelled_has_no_distance():
    summary = describe.summary(np.zeros((1, 3), np.int64), [np.arange(2)], 5)
    assert summary["emd"] is None
    assert (summary["examples"], summary["examples_left_out"], summary["unlabelled"]) == (2, 3, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "classes"), [(3, 10), (200, 100), (1, 20)])
def test_picture(tmp_path, clients, classes):
    counts = np.random.default_rng(0).integers(0, 5, (clients, classes))
    path = tmp_path / "partition.png"
    picture = describe.picture(counts, [f"class {c}" for c in range(classes)], "title")
    describe.draw(picture).savefig(path, dpi=120)
    with Image.open(path) as image:
        colours = image.convert("RGB").getcolors(2**24)
    # Every class has a colour of its own, in addition to those of text and grid.
    assert sum(count > 100 for count, _ in colours) >= min(classes, 50)


def test_picture_shows_unlabelled_examples(tmp_path):
    path = tmp_path / "partition.png"
    picture = describe.picture(np.array([[0, 0]]), ["a", "b"], "title", [np.arange(3)])
    assert json.loads(json.dumps(picture)) == picture
    describe.draw(picture).savefig(path, dpi=120)
    with Image.open(path) as image:
        assert (204, 204, 204) in {rgb for _, rgb in image.convert("RGB").getcolors(2**24)}


@pytest.mark.parametrize(("channels", "sizes"), [(3, [3, 12, 1]), (1, [2] * 40)])
def test_picture_of_clients_images(tmp_path, channels, sizes):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (sum(sizes), 6, 6, channels), dtype=np.uint8)
    images[0] = 200
    clients = np.split(np.arange(len(images)), np.cumsum(sizes)[:-1])
    path = tmp_path / "images.png"
    describe.draw_images(images, clients, "title").savefig(path, dpi=120)
    with Image.open(path) as image:
        assert (200, 200, 200) in {rgb for _, rgb in image.convert("RGB").getcolors(2**24)}
