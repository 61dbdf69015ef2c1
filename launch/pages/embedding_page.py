"""The page `embed.html`: images as an encoder sees them, without labels or with them.

It shows thumbnails on a 2-D map, clusters, nearest neighbours and near-duplicates
(`tff_ssl.analysis.embeddings`), with the names of the files. The number of thumbnails is bounded,
so that the page stays below about 3 MB for any number of images.
"""

import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from datasets.image_dataset import ImageDataset
from launch.options.script_configs import EmbedConfig
from launch.pages import charts, image_samples
from launch.pages.image_samples import Encode
from tff_ssl import whole_files
from tff_ssl.analysis import embeddings
from tff_ssl.analysis.embeddings import Embedding
from tff_ssl.evaluation import features
from tff_ssl.reporting.page import Page, Photo, Placed

FILE_NAME = "embed.html"
THUMBNAIL = 64  # Largest side of a thumbnail in pixels.
_CELLS = 20  # Cells of the map's grid in a row; each shows an image.
_CELL_SIDE = 40  # Side of the map's thumbnails in pixels.
_QUERY_CELLS = 4  # Cells in a row of the grid from which images with neighbours are taken.
_POINTS = 1500  # Largest number of points on a chart.
_CLUSTERS, _PAIRS = 30, 50  # Largest numbers of clusters and of pairs that are shown.
_OF_RUN = 2000  # Largest number of training images on the page of a run.
_STREAM = 0x3E8B  # Separates the draw of these images from other draws.


class Images(NamedTuple):
    """Images besides their features."""

    names: Sequence[str]  # Names of their files.
    labels: np.ndarray  # Class labels, int32 [n]; -1 for no label.
    class_names: Sequence[str]  # Name of each label.
    # Indices -> images uint8 [h, w, c], at least as large as thumbnails if they can be.
    read: Callable[[np.ndarray], Iterable[np.ndarray]]


class Overview(NamedTuple):
    """What a page shows: images and their embedding."""

    images: Images
    embedding: Embedding


def of_training_images(dataset: ImageDataset, encode: Encode, seed: int) -> Overview:
    """Embeds a run's training images, at most 2,000 drawn at random; there are three or more."""
    train = dataset.train
    order = np.random.default_rng([seed, _STREAM]).permutation(len(train))
    train = train.take(np.sort(order[:_OF_RUN]))
    names = [f"image {number}" for number in train.example_ids]
    if dataset.file_names:
        names = [dataset.file_names[number] for number in train.example_ids]
    images = Images(names, train.labels, dataset.class_names, lambda chosen: train.images[chosen])
    extracted, defaults = features.extract(encode, train.images), EmbedConfig()
    clusters, least = defaults.num_clusters, defaults.near_duplicates
    return Overview(images, embeddings.embed(extracted, seed, clusters, least))


def write(
    output: pathlib.Path,
    title: str,
    what: str,
    overview: Overview,
    ending: Callable[[Page], None] = lambda page: None,
) -> pathlib.Path:
    """Writes `embed.html`, and returns its path.

    Args:
      what: A sentence on which images these are.
      ending: Adds the last section.
    """
    images, embedding = overview
    thumbnails = _Thumbnails(images, _chosen(overview))
    page = Page(_shown(title))
    page.add_paragraph(_shown(what))
    page.add_paragraph(
        f"The encoder turns an image into {embedding.features.shape[1]} numbers, its features. "
        "Images with similar features are near each other on the map, neighbours of each other, "
        "and in the same cluster. Similarity is the cosine of the features: 1 for the same "
        "features, less for others."
        + (" Labels are only shown: nothing is computed from them." if _is_labelled(images) else "")
    )
    _add_map(page, overview, thumbnails)
    _add_clusters(page, overview, thumbnails)
    _add_neighbours(page, overview, thumbnails)
    _add_duplicates(page, overview, thumbnails)
    ending(page)
    return whole_files.write(output / FILE_NAME, page.render(), private=True)


def _is_labelled(images: Images) -> bool:
    return bool((images.labels >= 0).any())


def spread(points: np.ndarray, cells: int) -> np.ndarray:
    """For each cell of a grid over points that has any, the one nearest to its middle, int64.

    Args:
      points: Places, float32 [n, 2].
      cells: Number of cells in a row.
    """
    places, cell = _cells(points, cells)
    keys = cell[:, 0] * cells + cell[:, 1]
    order = np.lexsort((np.linalg.norm(places - cell - 0.5, axis=1), keys))
    return order[np.unique(keys[order], return_index=True)[1]]


def _cells(points: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Places in units of a cell, float64 [n, 2], and the cells, int64 [n, 2]."""
    low = points.min(0).astype(np.float64)
    places = (points - low) / np.maximum(points.max(0) - low, 1e-12) * cells
    return places, np.minimum(places.astype(np.int64), cells - 1)


class _Thumbnails:
    """The thumbnails of a page, for which images are read once."""

    def __init__(self, images: Images, chosen: np.ndarray):
        self._names, self._labels, self._classes = images.names, images.labels, images.class_names
        read = zip(chosen.tolist(), images.read(chosen), strict=True)
        self._images = {number: np.asarray(image) for number, image in read}

    def photo(self, number: int, more: str = "", kind: str = "", side: int = THUMBNAIL) -> Photo:
        """The thumbnail of an image, with its name, its class and `more` words."""
        label = self._labels[number]
        name = [self._names[number], *([self._classes[label]] if label >= 0 else [])]
        text = _shown(", ".join([*name, *([more] if more else [])]))
        return Photo(image_samples.small_jpeg(self._images[number], side), text, kind)


def _shown(text: str) -> str:
    """The text without the bytes of file names that are not UTF-8, which a page cannot contain."""
    return os.fsencode(text).decode("utf-8", "replace")


def _chosen(overview: Overview) -> np.ndarray:
    """The images that the page shows, int64, ascending."""
    embedding = overview.embedding
    queries = spread(embedding.points, _QUERY_CELLS)
    shown = [
        spread(embedding.points, _CELLS), queries, embedding.neighbours.indices[queries].ravel(),
        embedding.duplicates.pairs[:_PAIRS].ravel(),
        *embedding.clusters.representatives[:_CLUSTERS],
    ]  # fmt: skip
    return np.unique(np.concatenate(shown))


def _add_map(page: Page, overview: Overview, thumbnails: _Thumbnails) -> None:
    images, embedding = overview
    points, of_image = embedding.points, embedding.clusters.of_image
    page.add_section("Map")
    chosen = spread(points, _CELLS)
    most = embeddings.MAPPED
    how = f" of {most:,} of them, which place the others" if len(points) > most else ""
    page.add_paragraph(
        f"A map of all {len(points):,} images, by PCA and t-SNE{how}. Each thumbnail is one of the "
        f"images in its place, {len(chosen)} in all. Near images are similar; distances between "
        "groups mean nothing. The names of the files are shown under the pointer."
    )
    _, cells = _cells(points[chosen], _CELLS)
    step = 100 / _CELLS
    placed = [
        Placed(thumbnails.photo(number, side=_CELL_SIDE), (x + 0.5) * step, 100 - (y + 0.5) * step)
        for number, (x, y) in zip(chosen.tolist(), cells.tolist(), strict=True)
    ]
    page.add_map(placed, 0.96 * step)
    drawn = np.unique(np.linspace(0, len(points) - 1, _POINTS).astype(np.int64))
    places, pictures = points[drawn], []
    if _is_labelled(images):
        labels, names = images.labels[drawn], images.class_names
        pictures = charts.map_charts({"classes": places}, labels, names)
    clusters = [f"cluster {k}" for k in range(len(embedding.clusters.representatives))]
    pictures += charts.map_charts({"clusters": places}, of_image[drawn], clusters)
    page.add_pictures(pictures)


def _add_clusters(page: Page, overview: Overview, thumbnails: _Thumbnails) -> None:
    images, clusters = overview.images, overview.embedding.clusters
    sizes = np.bincount(clusters.of_image)
    page.add_section("Clusters")
    shown = min(len(sizes), _CLUSTERS)
    of_all = f"The largest {shown} of {len(sizes):,}" if shown < len(sizes) else f"The {shown}"
    page.add_paragraph(
        f"{of_all} clusters, found by k-means. The images are those nearest to the middle of their "
        "cluster, which represent it."
    )
    for number in range(shown):
        labels = images.labels[clusters.of_image == number]
        page.add_heading(_shown(_cluster_text(number, labels, images.class_names)))
        representatives = clusters.representatives[number].tolist()
        page.add_photos([[thumbnails.photo(k) for k in representatives]], "rows named")


def _cluster_text(number: int, labels: np.ndarray, class_names: Sequence[str]) -> str:
    """A heading such as `Cluster 0: 240 images, 62 % of the labelled ones are nv`."""
    text = f"Cluster {number}: {len(labels):,} image{'' if len(labels) == 1 else 's'}"
    known = labels[labels >= 0]
    if not len(known):
        return text
    counts = np.bincount(known)
    share = 100 * counts.max() / len(known)
    labelled = "" if len(known) == len(labels) else " of the labelled ones"
    return f"{text}, {share:.0f} %{labelled} {class_names[int(counts.argmax())]}"


def _add_neighbours(page: Page, overview: Overview, thumbnails: _Thumbnails) -> None:
    images, neighbours = overview.images, overview.embedding.neighbours
    queries = spread(overview.embedding.points, _QUERY_CELLS)
    page.add_section("Nearest neighbours")
    frames = (
        " A solid frame is the same class as the first image, a dashed one another class."
        if _is_labelled(images) else ""
    )  # fmt: skip
    page.add_paragraph(
        f"{len(queries)} images from all parts of the map (first in their rows), and the images "
        f"that are most similar to them, with their similarity.{frames}"
    )
    rows = []
    for query in queries.tolist():
        row = [thumbnails.photo(query, kind="first")]
        pairs = zip(neighbours.indices[query].tolist(), neighbours.similarities[query], strict=True)
        for other, similarity in pairs:
            kind = image_samples.frame(*images.labels[[query, other]])
            row.append(thumbnails.photo(other, f"{similarity:.3f}", kind))
        rows.append(row)
    page.add_photos(rows, "rows named")


def _add_duplicates(page: Page, overview: Overview, thumbnails: _Thumbnails) -> None:
    pairs, similarities, threshold = overview.embedding.duplicates
    page.add_section("Near-duplicates")
    count = overview.embedding.neighbours.indices.shape[1]
    among = f"a similarity of {threshold:g} or more, among the {count} nearest of each image"
    if not len(pairs):
        page.add_paragraph(f"No two images have {among}.")
        return
    most = f"; the {_PAIRS} most similar are shown" if len(pairs) > _PAIRS else ""
    have = "pair of images has" if len(pairs) == 1 else "pairs of images have"
    page.add_paragraph(
        f"{len(pairs):,} {have} {among}{most}. They may be copies, or photos of the same thing. "
        "How similar copies are depends on the encoder."
    )
    rows = [
        [thumbnails.photo(first), thumbnails.photo(second, f"{similarity:.4f}")]
        for (first, second), similarity in zip(pairs[:_PAIRS].tolist(), similarities, strict=False)
    ]
    page.add_photos(rows, "named")
