"""Embeds a folder of images, from its configuration to its page and files."""

import csv
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import tqdm

from datasets import catalog, listing
from datasets.listing import Listing
from launch.options import data, resuming
from launch.options.script_configs import EmbedConfig
from launch.outputs import output_folder, run_folder, tables
from launch.pages import embedding_page
from launch.pages.embedding_page import Images, Overview
from tff_ssl.analysis import embeddings
from tff_ssl.deployment import encoder
from tff_ssl.deployment.encoder import Encoder
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.reporting.page import Page

_BATCH = 256  # Images that are in memory at a time.
_CSV, _NPZ = "embeddings.csv", "embeddings.npz"


def embed(config: EmbedConfig) -> None:
    """Encodes the images of a folder, and writes and prints what is found."""
    if not config.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    if not config.data_dir:
        raise ConfigurationError("--data_dir is missing: name a folder of images")
    folder = pathlib.Path(config.data_dir)
    name = folder.resolve().name
    output = output_folder.choose_empty(config.output.output_dir, f"embed-{name}")
    loaded = _load_encoder(config.run)
    found = _list_images(as_run(config))
    _check_channels(loaded, found, config.run)
    count = len(found.rows)
    print(f"encodes {count:,} images of {folder} with the encoder of {config.run}", flush=True)
    with run_folder.new(output):
        features = _encode(loaded, found)
        print(f"searches their neighbours, clusters and places; writes to {output}/", flush=True)
        with _progress(count, "searching neighbours") as progress, naming(f"--run={config.run}"):
            embedding = embeddings.embed(
                features, config.seed, config.num_clusters, config.near_duplicates, progress.update
            )
        overview = Overview(_images(found), embedding)
        title = f"{count:,} images as the encoder sees them: {name}"
        what = f"{count:,} images of {folder}, {_classes(overview)}, encoded by {config.run}."
        _write(output, overview, title, what)
    _print_table(overview)
    print(f"\nwritten to {output}/: embed.html (open it in a browser), {_CSV}, {_NPZ}")


def as_run(config: EmbedConfig) -> EmbedConfig:
    """The configuration with the choices of the run for the same folder, where none are given."""
    run = run_folder.read_flags(run_folder.run_of(pathlib.Path(str(config.run))))
    trained_on, folder = run.get("data_dir"), pathlib.Path(str(config.data_dir))
    if not trained_on or pathlib.Path(trained_on).resolve() != folder.resolve():
        return config
    return resuming.take_over(config, run, ("follow_links", "skip_broken"))


def _list_images(config: EmbedConfig) -> Listing:
    """The images of the folder; prints the notes of the loader."""
    found = catalog.check(config.dataset, config.data_dir, config.follow_links, config.skip_broken)
    if len(found.rows) < 3:
        raise ConfigurationError(
            f"--data_dir={config.data_dir} needs three images or more; it has {len(found.rows)}"
        )
    data.print_notes(found.notes)
    return found


def _load_encoder(run: str) -> Encoder:
    try:
        return encoder.load_encoder(run)
    except ConfigurationError as error:
        raise ConfigurationError(f"--run: {error}") from error


def _check_channels(loaded: Encoder, found: Listing, run: str) -> None:
    if loaded.image_shape[2] != found.channels:
        shape = "x".join(map(str, loaded.image_shape))
        kind = {1: "grey", 3: "RGB", 4: "RGBA"}[found.channels]
        raise ConfigurationError(
            f"--run={run}: its encoder takes images of {shape}, and images of {found.source} are "
            f"{kind}: use an encoder that was trained on {kind} images"
        )


def _progress(count: int, title: str) -> tqdm.tqdm:
    return tqdm.tqdm(total=count, desc=title, unit="image", delay=1.0, disable=None, leave=False)


def _encode(loaded: Encoder, found: Listing) -> np.ndarray:
    """The features of all images, float32 [n, d]."""
    height, width, _ = loaded.image_shape
    features = np.empty((len(found.rows), loaded.features), np.float32)
    with _progress(len(features), "encoding images") as progress:
        done = 0
        for images in listing.read_in_batches(found, (width, height), _BATCH):
            features[done : done + len(images)] = loaded(images)
            done += len(images)
            progress.update(len(images))
    return features


def _images(found: Listing) -> Images:
    """The images of the page, which are read again from their files."""
    names = found.classes_of(row.label for row in found.rows)
    numbers = {"": -1} | {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[row.label] for row in found.rows], np.int32)
    side = embedding_page.THUMBNAIL

    def read(chosen: np.ndarray) -> Iterator[np.ndarray]:
        shown = found._replace(rows=[found.rows[number] for number in chosen])
        for batch in listing.read_in_batches(shown, (side, side), _BATCH):
            yield from batch

    return Images([row.file_name for row in found.rows], labels, names, read)


def _write(output: pathlib.Path, overview: Overview, title: str, what: str) -> None:
    """Writes the files to the folder when all of them are complete."""
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
    places = np.concatenate([embedding.points, embedding.features], axis=1)
    rows = zip(images.names, _labels(images), embedding.clusters.of_image, places, strict=True)
    # Names of files need not be UTF-8.
    with (
        open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file,
        _progress(count, f"writing {_CSV}") as progress,
    ):
        table = csv.writer(file)
        columns = ["file_name", "label", "cluster", "x", "y", *(f"f{i}" for i in range(width))]
        table.writerow(columns)
        for *about, numbers in rows:
            table.writerow([*about, *(f"{number:.7g}" for number in numbers.tolist())])
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
    images, embedding = overview
    pairs, _, threshold = embedding.duplicates
    rows = [
        ["images", f"{len(images.names):,}"],
        ["classes", f"{len(images.class_names):,}" if images.class_names else "no labels"],
        ["clusters", f"{len(embedding.clusters.representatives):,}"],
        [f"pairs of near-duplicates (cosine {threshold:g} or more)", f"{len(pairs):,}"],
    ]
    print(f"\n{tables.aligned(rows)}")
