"""The page of embedded images: what it shows, its size, and that it fits screens."""

import re

import numpy as np
import pytest

from launch.pages import embedding_page
from launch.pages.embedding_page import Images, Overview
from tests import browser
from tff_ssl.analysis import embeddings
from tff_ssl.analysis.embeddings import Clusters, Duplicates, Embedding, Neighbours

SIDE = embedding_page.THUMBNAIL


def overview(count, clusters=10, labelled=True):
    """Images of noise, the largest that JPEGs can be, with any places, clusters and neighbours."""
    rng = np.random.default_rng(0)
    names = [f"a_folder_with_a_long_name/another_one/<i>image_{k}.jpg" for k in range(count)]
    labels = np.arange(count, dtype=np.int32) % 3 if labelled else np.full(count, -1, np.int32)

    def read(chosen):
        assert len(set(chosen.tolist())) == len(chosen)
        return rng.integers(0, 256, (len(chosen), SIDE, SIDE, 3), np.uint8)

    of_image = np.sort(np.arange(count, dtype=np.int32) % clusters)
    members = [np.flatnonzero(of_image == number)[:6] for number in range(clusters)]
    neighbours = (np.arange(count)[:, None] + np.arange(1, 6)) % count
    pairs = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1).astype(np.int32)
    embedding = Embedding(
        rng.normal(size=(count, 4)).astype(np.float32),
        rng.uniform(size=(count, 2)).astype(np.float32),
        Neighbours(neighbours.astype(np.int32), np.full((count, 5), 0.9876, np.float32)),
        Duplicates(pairs, np.full(count - 1, 0.9995, np.float32), 0.999),
        Clusters(of_image, members),
    )
    return Overview(Images(names, labels, ("x", "y", "<b>z</b>"), read), embedding)


def test_the_page_has_all_its_parts(tmp_path):
    page = embedding_page.write(tmp_path, "A <b>title</b>", "Which images.", overview(60, 4))
    assert page == tmp_path / "embed.html"
    html = page.read_text()
    assert re.findall(r"<h2>(.*?)</h2>", html) == [
        "Map", "Clusters", "Nearest neighbours", "Near-duplicates",
    ]  # fmt: skip
    assert "A &lt;b&gt;title&lt;/b&gt;" in html
    assert "&lt;i&gt;image_7.jpg, y" in html
    assert not re.search(r"<[bi]>", html)
    assert not re.search(r'(src|href)="https?:', html)
    assert html.count('class="chart"') == 2
    assert "Cluster 0: 15 images, 33 % x" in html
    assert html.count('class="near"') + html.count('class="far"') == 5 * html.count('class="first"')
    assert "59 pairs of images have a similarity of 0.999 or more" in html
    assert "the 50 most similar are shown" in html
    assert "&lt;i&gt;image_49.jpg, y, 0.9995" in html
    assert not re.search(r"image_52\.jpg, y, 0\.9995", html)


def test_without_labels_there_are_no_classes_and_frames(tmp_path):
    page = embedding_page.write(tmp_path, "t", "w", overview(20, 2, labelled=False))
    html = page.read_text()
    assert html.count('class="chart"') == 1
    assert "Cluster 1: 10 images<" in html
    assert 'class="near"' not in html
    assert 'class="far"' not in html


def test_an_image_of_each_occupied_cell_is_the_one_nearest_to_its_middle():
    points = np.array([[0, 0], [0.3, 0.2], [0.9, 0.1], [1, 1], [0.4, 0.1]], np.float32)
    assert sorted(embedding_page.spread(points, 2)) == [1, 2, 3]
    assert sorted(embedding_page.spread(np.ones((4, 2), np.float32), 5)) == [0]


@pytest.mark.slow
def test_the_page_of_many_images_is_small_and_nothing_overflows_in_a_browser(tmp_path):
    title = "a_long_name_of_a_folder_" * 6
    page = embedding_page.write(tmp_path, title, title, overview(20_000, 60))
    assert page.stat().st_size < 3.3e6
    browser.check_layout(page)


def test_training_images_have_the_names_of_their_files():
    from tests.launch.pages import run_folders

    dataset = run_folders.images(channels=3, labelled=False)
    encode = run_folders.linear_encoder(dataset, 0)
    found = embedding_page.of_training_images(dataset, encode, seed=0)
    assert found.images.names[:2] == ["image 0", "image 1"]
    assert len(found.images.names) == 60
    assert found.embedding.neighbours.indices.shape == (60, embeddings.NEIGHBOURS)
