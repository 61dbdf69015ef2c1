"""Compares encoders: their 2-D maps of features, and the distances of their weights."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from datasets.image_dataset import ImageDataset, Split
from launch.options import data, resuming, settings
from launch.options.script_configs import VisualizeConfig
from launch.outputs import feature_plots, output_folder, run_folder, tables
from launch.pages import image_samples
from tff_ssl.analysis import feature_maps, weight_distances
from tff_ssl.deployment import saved_model
from tff_ssl.deployment.saved_model import LoadedEncoder
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.evaluation import features, labels
from tff_ssl.losses import cka, cosine
from tff_ssl.models.dual_encoder import Weights

Folders = Mapping[str, pathlib.Path]  # Name of an encoder -> its folder.


class Encoder(NamedTuple):
    """An encoder, its weights with their names, and its features of the images."""

    name: str
    folder: pathlib.Path
    weights: Weights
    weight_names: Weights
    features: np.ndarray  # float32 [images, d].


def compare_named(config: VisualizeConfig) -> None:
    """Compares the encoders of `--encoders`, by default on the data set of the first one's run."""
    folders = _named_folders(config.encoders)
    first = run_folder.run_of(next(iter(folders.values())))
    run = run_folder.read_flags(first)
    config = resuming.take_over(config, run, data.IMAGE_FLAGS, first)
    output = config.output.output_dir
    compare(folders, config, output_folder.choose(output, f"visualize-{config.data.dataset}"))


def compare(folders: Folders, config: VisualizeConfig, output: pathlib.Path) -> list[pathlib.Path]:
    """Compares encoders; returns the paths of the written files, none if no two are comparable."""
    loaded = _load(folders, config)
    dataset = data.load_dataset(config.data)
    for name, encoder in loaded.items():
        data.check_image_shape(dataset, encoder.image_shape, f"encoder {name}")
    images = _choose_images(dataset, config)
    images_text = f"{len(images)} {config.images} images of {dataset.name}"
    print(
        f"Compares the encoders {', '.join(folders)} on {images_text},\n"
        f"and writes features.png, distances.png and visualize.json to {output}/",
        flush=True,
    )
    encoders = _encode(loaded, folders, images, skips_unlike=bool(config.run))
    if len(encoders) < 2:
        print("note: no two encoders have the same number of features, so that none are compared")
        return []
    pairs = [_compare(a, b) for a, b in itertools.combinations(encoders, 2)]
    concatenated = np.concatenate([encoder.features for encoder in encoders])
    print(f"computing a 2-D map of {len(concatenated):,} features", flush=True)
    plane = feature_maps.feature_map(concatenated, config.seed)
    report = {
        "flags": settings.to_json(config),
        "encoders": {encoder.name: str(encoder.folder) for encoder in encoders},
        "images": len(images),
        "features": int(encoders[0].features.shape[1]),
        "pca_components": plane.components,
        "pca_explained_variance": plane.explained_variance,
        "pairs": pairs,
    }
    title = (
        f"Features of {images_text}: PCA to {plane.components} dimensions "
        f"({plane.explained_variance:.0%} of the variance), then t-SNE"
    )
    parts = np.split(plane.points, len(encoders))
    points = {encoder.name: part for encoder, part in zip(encoders, parts, strict=True)}
    output.mkdir(parents=True, exist_ok=True)
    written = [output / "features.png"]
    feature_plots.draw_features(points, images.labels, dataset.class_names, written[0], title)
    first = encoders[0].name
    with_first = [pair for pair in pairs if pair["encoders"][0] == first and pair["weights"]]
    if with_first:
        written.append(output / "distances.png")
        feature_plots.draw_distances(with_first, written[-1])
    written.append(output / "visualize.json")
    run_folder.write_json(written[-1], report)
    _print_table(pairs)
    for path in written:
        print(f"wrote {path}")
    return written


def _named_folders(encoders: Sequence[str]) -> Folders:
    """The folders of `--encoders`, texts NAME=FOLDER."""
    folders: dict[str, pathlib.Path] = {}
    for text in encoders:
        name, _, folder = (part.strip() for part in text.partition("="))
        if not name or not folder:
            raise ConfigurationError(f"--encoders takes NAME=FOLDER,NAME=FOLDER; got {text!r}")
        if name in folders:
            raise ConfigurationError(f"--encoders has two encoders called {name}")
        folders[name] = pathlib.Path(folder)
    if len(folders) < 2:
        raise ConfigurationError(f"--encoders needs two encoders or more; got {name}")
    return folders


def folders_of_run(run: pathlib.Path) -> Folders:
    """The folders of a run's encoder and of its clients' encoders."""
    folders = {run_folder.name_of_model(run): run}
    for client in sorted(int(p.name) for p in run.glob("clients/*") if p.name.isdecimal()):
        # The paper's local model is the one after local training, before it is averaged.
        local = run / "clients" / str(client) / "local"
        if local.exists():
            folders[f"client {client} local"] = local
        else:
            folders[f"client {client}"] = local.parent
    return folders


def _load(folders: Folders, config: VisualizeConfig) -> dict[str, LoadedEncoder]:
    loaded, flag = {}, "--run" if config.run else "--encoders"
    for name, folder in folders.items():
        path = run_folder.encoder_of(folder)
        with naming(f"{flag}: {name}"):
            loaded[name] = saved_model.load_encoder(path, config.run_saved_model_graph)
    return loaded


def _choose_images(dataset: ImageDataset, config: VisualizeConfig) -> Split:
    """Draws at most `--max_images` images of the split."""
    split = dataset.test if config.images == "test" else dataset.train
    if len(split) < 2:
        raise ConfigurationError(
            f"--images={config.images}: --dataset={dataset.name} has {len(split)} such images"
        )
    labelled = int(np.count_nonzero(split.labels >= 0))
    count = min(config.max_images, labelled if labelled > 1 else len(split))
    return split.take(image_samples.evenly_drawn(split, count, np.random.default_rng(config.seed)))


def _encode(
    loaded: Mapping[str, LoadedEncoder], folders: Folders, images: Split, skips_unlike: bool
) -> list[Encoder]:
    """Applies the encoders to the images; with `skips_unlike`, leaves out other feature spaces."""
    encoders: list[Encoder] = []
    for name, encoder in loaded.items():
        with naming(f"encoder {name}"):
            h = labels.finite_features(name, features.extract(encoder, images.images))
        if encoders and h.shape[1] != encoders[0].features.shape[1]:
            unlike = (
                f"encoder {name} has {h.shape[1]} features and {encoders[0].name} has "
                f"{encoders[0].features.shape[1]}: they lie in no common space"
            )
            if not skips_unlike:
                raise ConfigurationError(unlike)
            print(f"note: {unlike}")
            continue
        encoders.append(Encoder(name, folders[name], encoder.weights, encoder.weight_names, h))
    return encoders


def _compare(a: Encoder, b: Encoder) -> dict[str, Any]:
    """The entry of a pair in `visualize.json`; without distances if the structures differ."""
    weights: dict[str, Any]
    try:
        kinds = {"weights": "trainable", "moving_averages": "non_trainable"}
        weights = {key: _distances(a, b, kind) for key, kind in kinds.items()}
    except ConfigurationError as error:
        weights = {"weights": None, "moving_averages": None, "structures_differ": str(error)}
    return {
        "encoders": [a.name, b.name],
        **weights,
        "linear_cka": float(cka.linear_cka(a.features, b.features)),
        "mean_cosine": float(tf.reduce_mean(cosine.cosine(a.features, b.features))),
    }


def _distances(a: Encoder, b: Encoder, kind: str) -> dict[str, Any]:
    """d_w and the distance of each layer; `kind` is `trainable` or `non_trainable`."""
    names = getattr(a.weight_names, kind)
    layers = weight_distances.layer_distances(getattr(a.weights, kind), getattr(b.weights, kind))
    by_name = dict(zip(names, layers.tolist(), strict=True))
    return {"distance": float(layers.sum()), "layers": by_name}


def _print_table(pairs: list[dict[str, Any]]) -> None:
    """Prints a row for each pair, and why a pair has no distances."""
    rows, unlike = [["", "d_w", "moving averages", "linear CKA", "mean cosine"]], []
    for pair in pairs:
        title = ", ".join(pair["encoders"])
        # A dash if there are no such weights, or the structures differ.
        distances = (
            f"{pair[kind]['distance']:.4f}" if pair[kind] and pair[kind]["layers"] else "-"
            for kind in ("weights", "moving_averages")
        )
        rows.append([title, *distances, *(f"{pair[k]:.4f}" for k in ("linear_cka", "mean_cosine"))])
        if "structures_differ" in pair:
            unlike.append(f"{title}: {pair['structures_differ']}")
    print(f"\n{tables.aligned(rows)}")
    if unlike:
        more = f"; likewise {len(unlike) - 1} more" if len(unlike) > 1 else ""
        print(f"no distances between unlike structures: {unlike[0]}{more}")
    print()
