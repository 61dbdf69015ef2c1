"""Shows your own images as an encoder sees them, and writes the features of the images.

    python -m launch.embed --run=RUN --data_dir=FOLDER --output_dir=OUT

The images may have labels or not; --dataset says what kind of folder or file they are in. Writes
`embed.html`, a page with thumbnails on a 2-D map, clusters, nearest neighbours and near-duplicates,
and the same as numbers:

- `embeddings.csv`, a row for each image: file_name, label, cluster, x, y (its place on the map),
  and its features f0, f1, ... to seven digits.
- `embeddings.npz`, arrays in the order of those rows: file_name, label, features, map, cluster;
  neighbours and similarities, the numbers of the 5 most similar images of each image and their
  cosines; duplicates, the numbers of both images of each pair of near-duplicates.

Images are read and encoded 256 at a time: only their features are kept.
"""

from __future__ import annotations

import contextlib
import csv
import pathlib
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from launch.options import app
from launch.options.script_configs import EmbedConfig

if TYPE_CHECKING:
    from datasets.listing import Listing
    from launch.pages.embedding_page import Images, Overview
    from tff_ssl.deployment.encoder import Encoder
    from tff_ssl.reporting.page import Page

_BATCH = 256  # Images that are in memory at a time.
_CSV, _NPZ = "embeddings.csv", "embeddings.npz"


def main(config: EmbedConfig) -> None:
    from launch.outputs import output_folder
    from tff_ssl.errors import ConfigurationError

    if not config.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    if not config.data_dir:
        raise ConfigurationError("--data_dir is missing: name a folder of images")
    folder = pathlib.Path(config.data_dir)
    name = folder.resolve().name
    output = output_folder.choose(config.output.output_dir, f"embed-{name}")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigurationError(f"--output_dir={output} is not empty: name a new folder")
    encoder = _load_encoder(config.run)
    listing = _list_images(as_run(config))
    _check_channels(encoder, listing, config.run)
    count = len(listing.rows)
    print(f"encodes {count:,} images of {folder} with the encoder of {config.run}", flush=True)
    with _new_folder(output):
        features = _encode(encoder, listing)
        print(f"searches their neighbours, clusters and places; writes to {output}/", flush=True)
        overview = _embed(listing, features, config)
        title = f"{count:,} images as the encoder sees them: {name}"
        what = f"{count:,} images of {folder}, {_classes(overview)}, encoded by {config.run}."
        _write(output, overview, title, what)
    _print_table(overview)
    print(f"\nwritten to {output}/: embed.html (open it in a browser), {_CSV}, {_NPZ}")


def as_run(config: EmbedConfig) -> EmbedConfig:
    """The configuration with the choices of the run for the same folder, where none are given."""
    from launch.options import resuming
    from launch.outputs import run_folder

    run = run_folder.read_flags(run_folder.run_of(pathlib.Path(str(config.run))))
    trained_on, folder = run.get("data_dir"), pathlib.Path(str(config.data_dir))
    if not trained_on or pathlib.Path(trained_on).resolve() != folder.resolve():
        return config
    return resuming.take_over(config, run, ("follow_links", "skip_broken"))


def _list_images(config: EmbedConfig) -> Listing:
    """The images of the folder; prints the notes of the loader."""
    from datasets import catalog
    from launch.options import data
    from tff_ssl.errors import ConfigurationError

    listing = catalog.check(
        config.dataset, config.data_dir, config.follow_links, config.skip_broken
    )
    if len(listing.rows) < 3:
        raise ConfigurationError(
            f"--data_dir={config.data_dir} needs three images or more; it has {len(listing.rows)}"
        )
    data.print_notes(listing.notes)
    return listing


def _load_encoder(run: str) -> Encoder:
    from tff_ssl.deployment import encoder
    from tff_ssl.errors import ConfigurationError

    try:
        loaded = encoder.load_encoder(run)
    except ConfigurationError as error:
        is_stopped = any(pathlib.Path(run).glob("checkpoints/*"))
        advice = "; launch.export writes the one of a stopped run to RUN/export" * is_stopped
        raise ConfigurationError(f"--run: {error}{advice}") from error
    return loaded


def _check_channels(encoder: Encoder, listing: Listing, run: str) -> None:
    from tff_ssl.errors import ConfigurationError

    if encoder.image_shape[2] != listing.channels:
        shape = "x".join(map(str, encoder.image_shape))
        kind = {1: "grey", 3: "RGB", 4: "RGBA"}[listing.channels]
        raise ConfigurationError(
            f"--run={run}: its encoder takes images of {shape}, and images of {listing.source} are "
            f"{kind}: use an encoder that was trained on {kind} images"
        )


@contextlib.contextmanager
def _new_folder(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder, which is removed again if the block fails."""
    from launch.outputs import run_folder

    is_new = not folder.exists()
    run_folder.make(folder)
    try:
        yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # It is not empty.
                folder.rmdir()
        raise


def _progress(count: int, title: str):
    import tqdm

    return tqdm.tqdm(total=count, desc=title, unit="image", delay=1.0, disable=None, leave=False)


def _encode(encoder: Encoder, listing: Listing) -> np.ndarray:
    """The features of all images, float32 [n, d]."""
    from datasets.listing import read_in_batches

    height, width, _ = encoder.image_shape
    features = np.empty((len(listing.rows), encoder.features), np.float32)
    with _progress(len(features), "encoding images") as progress:
        done = 0
        for images in read_in_batches(listing, (width, height), _BATCH):
            features[done : done + len(images)] = encoder(images)
            done += len(images)
            progress.update(len(images))
    return features


def _embed(listing: Listing, features: np.ndarray, config: EmbedConfig) -> Overview:
    from launch.pages.embedding_page import Overview
    from tff_ssl.analysis import embeddings
    from tff_ssl.errors import ConfigurationError

    with _progress(len(features), "searching neighbours") as progress:
        try:
            embedding = embeddings.embed(
                features, config.seed, config.num_clusters, config.near_duplicates, progress.update
            )
        except ValueError as error:  # The features are not finite.
            raise ConfigurationError(f"--run={config.run}: {error}") from error
    return Overview(_images(listing), embedding)


def _images(listing: Listing) -> Images:
    """The images of the page, which are read again from their files."""
    from datasets.listing import read_in_batches
    from launch.pages import embedding_page

    names = listing.classes_of(row.label for row in listing.rows)
    numbers = {"": -1} | {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[row.label] for row in listing.rows], np.int32)
    side = embedding_page.THUMBNAIL

    def read(chosen: np.ndarray) -> Iterator[np.ndarray]:
        shown = listing._replace(rows=[listing.rows[number] for number in chosen])
        for batch in read_in_batches(shown, (side, side), _BATCH):
            yield from batch

    return embedding_page.Images([row.file_name for row in listing.rows], labels, names, read)


def _write(output: pathlib.Path, overview: Overview, title: str, what: str) -> None:
    """Writes the files to the folder when all of them are complete."""
    from launch.pages import embedding_page

    with tempfile.TemporaryDirectory(prefix=".embed_", dir=output) as scratch:
        new = pathlib.Path(scratch)
        _write_npz(new / _NPZ, overview)
        _write_csv(new / _CSV, overview)
        embedding_page.write(new, title, what, overview, _add_files)
        for path in sorted(new.iterdir()):
            path.chmod(0o600)  # As all files with images or what can be told from them.
            path.rename(output / path.name)


def _labels(images: Images) -> list[str]:
    return [images.class_names[label] if label >= 0 else "" for label in images.labels.tolist()]


def _write_npz(path: pathlib.Path, overview: Overview) -> None:
    images, embedding = overview
    np.savez_compressed(
        path,
        file_name=np.array(images.names),
        label=np.array(_labels(images)),
        features=embedding.features,
        map=embedding.points,
        cluster=embedding.clusters.of_image,
        neighbours=embedding.neighbours.indices,
        similarities=embedding.neighbours.similarities,
        duplicates=embedding.duplicates.pairs,
    )


def _write_csv(path: pathlib.Path, overview: Overview) -> None:
    images, embedding = overview
    count, width = embedding.features.shape
    # Names of files need not be UTF-8.
    with (
        open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file,
        _progress(count, f"writing {_CSV}") as progress,
    ):
        table = csv.writer(file)
        table.writerow(
            ["file_name", "label", "cluster", "x", "y", *(f"f{i}" for i in range(width))]
        )
        numbers = zip(
            embedding.clusters.of_image, embedding.points, embedding.features, strict=True
        )
        names = zip(images.names, _labels(images), strict=True)
        for (name, label), (cluster, point, features) in zip(names, numbers, strict=True):
            values = [f"{value:.7g}" for value in (*point.tolist(), *features.tolist())]
            table.writerow([name, label, cluster, *values])
            progress.update()


def _classes(overview: Overview) -> str:
    """The number of classes in words, such as `7 classes`."""
    images = overview.images
    count = len(images.class_names)
    if not count:
        return "without labels"
    unlabelled = int((images.labels < 0).sum())
    more = f" and {unlabelled:,} images without labels" if unlabelled else ""
    return f"{count:,} class{'' if count == 1 else 'es'}{more}"


def _add_files(page: Page) -> None:
    """Adds a section on the files beside the page."""
    page.add_section("Files")
    page.add_paragraph(
        f"{_CSV} has a row for each image, and {_NPZ} these arrays, in the order of the rows. "
        "Images and clusters are numbered from 0."
    )
    rows = [
        ["array", "content"],
        ["file_name, label", "name of the file, and its class, which is empty if unknown"],
        ["features", "what the encoder gives, float32"],
        ["map", "x and y on the map"],
        ["cluster", "number of the cluster"],
        ["neighbours, similarities", "the most similar images and their cosines"],
        ["duplicates", "both images of each pair of near-duplicates, most similar first"],
    ]
    page.add_grid(rows, "words")


def _print_table(overview: Overview) -> None:
    from launch.outputs import tables

    images, embedding = overview
    pairs, _, threshold = embedding.duplicates
    rows = [
        ["images", f"{len(images.names):,}"],
        ["classes", f"{len(images.class_names):,}" if images.class_names else "no labels"],
        ["clusters", f"{len(embedding.clusters.representatives):,}"],
        [f"pairs of near-duplicates (cosine {threshold:g} or more)", f"{len(pairs):,}"],
    ]
    print(f"\n{tables.aligned(rows)}")


SCRIPT = app.Script("embed", main, EmbedConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
