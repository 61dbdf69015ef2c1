"""Makes the page of a run, puts runs side by side, and measures how far apart encoders are.

    python -m launch.visualize --run=RUN
    python -m launch.visualize --compare=RUN,RUN
    python -m launch.visualize --encoders=global=RUN,own=RUN/clients/0,other=RUN2 --images=train

--run writes `run.html`, the page with which a run of `pretrain` or `centralized` ends, anew into
the run's folder: with results of later evaluations, or of a run that was stopped. --compare writes
`compare.html`.

--encoders, and --run for a run with clients' own encoders (`--personalized_clients`), compare
encoders by the method of appendix B.3 of "Does Learning from Decentralized Non-IID Unlabeled Data
Benefit from Self Supervision?": the features of the same images from all encoders are concatenated,
reduced to 20 dimensions by PCA and to the plane by t-SNE (the paper's UMAP needs numba). They print
for each pair of encoders d_w (the sum over layers of the l2 norms of their weights' difference),
the same distance of batch norm's moving averages, and linear CKA and mean cosine of their features
(after a ReLU the cosine is high for any two encoders; CKA tells them apart), and write
`features.png`, `distances.png` (d_w by layer, the first encoder against the others) and
`visualize.json`.
"""

import itertools
import pathlib
from typing import Any, NamedTuple

from absl import flags

import launch.options.flags
from launch.options import app

launch.options.flags.define_common_flags()
launch.options.flags.define_data_flags()
launch.options.flags.define_model_flags()
launch.options.flags.define_encoder_flags()
flags.DEFINE_list(
    "encoders",
    [],
    "NAME=FOLDER,NAME=FOLDER,...: the encoders. A folder is that of a run, its encoder/, or its "
    "clients/K, which `pretrain --personalized_clients` writes. The data flags of the first "
    "encoder's run hold unless they are given.",
)
flags.DEFINE_string(
    "run",
    None,
    "A run, whose page is written; --output_dir is the run itself unless it is given. If it has "
    "encoders in its clients/, they are compared with its own. A client's encoder is the one after "
    "its local training where that is kept (fedbn with --hparam=keep_local=true, featarc), "
    "otherwise its personalized one.",
)
flags.DEFINE_list("compare", [], "RUN,RUN,...: runs that are put side by side.")
flags.DEFINE_enum(
    "images", "test", ["test", "train"], "Split whose features are shown by --encoders."
)
flags.DEFINE_integer(
    "max_images",
    1000,
    "Largest number of images of --encoders. Where there are labels, only images with a label are "
    "drawn, evenly over the classes.",
    lower_bound=2,
)
flags.adopt_module_key_flags(launch.options.flags)

# Flags that are taken from the first encoder's run.
_RUN_FLAGS = ("dataset", "data_dir", "image_size")


class Encoder(NamedTuple):
    """An encoder and its features of the images.

    Attributes:
      name: Name that the user gave it.
      folder: Folder that it was loaded from.
      weights: `Weights` of arrays.
      weight_names: `Weights` of their names.
      features: float32 [images, d].
    """

    name: str
    folder: pathlib.Path
    weights: Any
    weight_names: Any
    features: Any


def main() -> None:
    from tff_ssl.errors import ConfigurationError

    args = flags.FLAGS
    given = [name for name in ("run", "compare", "encoders") if args[name].value]
    if len(given) != 1:
        raise ConfigurationError(
            "give one of --run=RUN, --compare=RUN,RUN and --encoders=NAME=FOLDER,NAME=FOLDER"
        )
    if args.run:
        _draw_run(pathlib.Path(args.run), args)
    elif args.compare:
        _compare_runs([pathlib.Path(text) for text in args.compare], args)
    else:
        _compare_encoders(_folders(args), args)


def _draw_run(run: pathlib.Path, args: flags.FlagValues) -> None:
    """Writes the page of a run, and compares its clients' encoders if it has any."""
    from launch.outputs import run_folder
    from launch.pages import rebuilding, run_files, run_page
    from tff_ssl.reporting.page import Picture

    run_files.read(run)
    output = pathlib.Path(args.output_dir or run)
    print(f"Writes run.html of {run}/ to {output}/", flush=True)
    rebuilt = rebuilding.rebuild(run, args)
    run_folder.make(output)
    folders, pictures = _folders_of_run(run), []
    if len(folders) > 1:
        args.output_dir = str(output)
        for path in _compare_encoders(folders, args):
            if path.suffix == ".png":
                text = path.stem.replace("_", " ")
                pictures.append(Picture(path.read_bytes(), f"{text} of {', '.join(folders)}"))
    page = run_page.write(
        run, output, rebuilt.shown, rebuilt.dataset.class_names, rebuilt.partition, pictures
    )
    print(f"wrote {page}")


def _compare_runs(runs: list[pathlib.Path], args: flags.FlagValues) -> None:
    """Writes `compare.html` of two or more runs."""
    from launch.outputs import output_folder, run_folder
    from launch.pages import comparison_page, rebuilding, run_files
    from tff_ssl.errors import ConfigurationError

    if len(runs) < 2:
        raise ConfigurationError(f"--compare needs two runs or more; got {runs[0]}")
    for run in runs:
        run_files.read(run)
    folders = dict(zip(comparison_page.run_names(runs), runs, strict=True))
    output = output_folder.choose(args.output_dir, "compare")
    print(f"Writes compare.html of {', '.join(folders)} to {output}/", flush=True)
    own = {flag.name: flag.value for flag in run_folder.own_flags(args) if not flag.present}
    rebuilt = {}
    for name, run in folders.items():
        for flag, default in own.items():  # Of the run before.
            args[flag].value, args[flag].present = default, 0
        rebuilt[name] = rebuilding.rebuild(run, args, draw_seed=0)
    run_folder.make(output)
    page = comparison_page.write(
        folders,
        output,
        {name: one.shown for name, one in rebuilt.items()},
        {name: one.dataset.class_names for name, one in rebuilt.items()},
        {name: one.partition for name, one in rebuilt.items()},
    )
    print(f"wrote {page}")


def _compare_encoders(
    folders: dict[str, pathlib.Path], args: flags.FlagValues
) -> list[pathlib.Path]:
    """Compares encoders, prints and writes their distances; returns the paths of the files."""
    from launch.options import data
    from launch.outputs import run_folder

    first = run_folder.run_of(next(iter(folders.values())))
    run_folder.take_over(run_folder.read_flags(first), _RUN_FLAGS, args)
    loaded = _load(folders, args)
    dataset = data.load_dataset(args)
    for name, encoder in loaded.items():
        data.check_image_shape(dataset, encoder.image_shape, f"encoder {name}")
    images = _choose_images(dataset, args)
    output = data.default_output_dir("visualize", args)
    images_text = f"{len(images)} {args.images} images of {dataset.name}"
    print(
        f"Compares the encoders {', '.join(folders)} on {images_text},\n"
        f"and writes features.png, distances.png and visualize.json to {output}/",
        flush=True,
    )
    encoders = _encode(loaded, folders, images, skips_unlike=bool(args.run))
    if len(encoders) < 2:
        print("note: no two encoders have equally many features, so that none are compared")
        return []
    pairs = [_compare(a, b) for a, b in itertools.combinations(encoders, 2)]
    plane = _plane(encoders, args)
    report = {
        "flags": run_folder.settings("visualize", args),
        "encoders": {encoder.name: str(encoder.folder) for encoder in encoders},
        "images": len(images),
        "features": int(encoders[0].features.shape[1]),
        "pca_components": plane.components,
        "pca_explained_variance": plane.explained_variance,
        "pairs": pairs,
    }
    written = _write(output, report, encoders, plane, images, dataset.class_names, images_text)
    _print_table(pairs)
    for path in written:
        print(f"wrote {path}")
    return written


def _folders(args: flags.FlagValues) -> dict[str, pathlib.Path]:
    """Name -> folder of each encoder, from `--encoders`."""
    from tff_ssl.errors import ConfigurationError

    folders: dict[str, pathlib.Path] = {}
    for text in args.encoders:
        name, _, folder = (part.strip() for part in text.partition("="))
        if not name or not folder:
            raise ConfigurationError(f"--encoders takes NAME=FOLDER,NAME=FOLDER; got {text!r}")
        if name in folders:
            raise ConfigurationError(f"--encoders has two encoders called {name}")
        folders[name] = pathlib.Path(folder)
    if len(folders) < 2:
        raise ConfigurationError(
            f"--encoders needs two encoders or more; got {next(iter(folders))}"
        )
    return folders


def _folders_of_run(run: pathlib.Path) -> dict[str, pathlib.Path]:
    """Name -> folder of the run's encoder and of its clients' encoders."""
    from launch.outputs import run_folder

    clients = sorted(int(path.name) for path in run.glob("clients/*") if path.name.isdecimal())
    folders = {run_folder.name_of_model(run): run}
    for client in clients:
        # The paper's local model is the one after local training, before it is averaged.
        local = run / "clients" / str(client) / "local"
        if local.exists():
            folders[f"client {client} local"] = local
        else:
            folders[f"client {client}"] = local.parent
    return folders


def _load(folders: dict[str, pathlib.Path], args: flags.FlagValues) -> dict[str, Any]:
    """Name -> `LoadedEncoder` of each folder."""
    from launch.outputs import run_folder
    from tff_ssl.deployment import saved_model
    from tff_ssl.errors import ConfigurationError

    loaded = {}
    for name, folder in folders.items():
        try:
            loaded[name] = saved_model.load_encoder(
                run_folder.encoder_of(folder), args.run_saved_model_graph
            )
        except ConfigurationError as error:
            flag = "--run" if args.run else "--encoders"
            raise ConfigurationError(f"{flag}: {name}: {error}") from error
    return loaded


def _choose_images(dataset, args: flags.FlagValues):
    """Draws at most `--max_images` images of the split, as a `Split`."""
    import numpy as np

    from tff_ssl.errors import ConfigurationError
    from tff_ssl.evaluation import labels

    split = dataset.test if args.images == "test" else dataset.train
    if len(split) < 2:
        raise ConfigurationError(
            f"--images={args.images}: --dataset={args.dataset} has {len(split)} such images"
        )
    rng = np.random.default_rng(args.seed)
    labelled = np.flatnonzero(split.labels >= 0)
    candidates = labelled if len(labelled) > 1 else np.arange(len(split))
    count = min(args.max_images, len(candidates))
    if len(labelled) > 1 and count >= len(np.unique(split.labels[labelled])):
        return split.take(labels.draw_labels(split.labels, rng, total=count, even=True))
    return split.take(np.sort(rng.choice(candidates, count, replace=False)))


def _encode(
    loaded: dict[str, Any], folders: dict[str, pathlib.Path], images, skips_unlike: bool
) -> list[Encoder]:
    """Applies the encoders to the images.

    Args:
      loaded: Encoders by name.
      folders: Their folders by name.
      images: The images.
      skips_unlike: Whether encoders with another number of features than the first are left out.

    Raises:
      ConfigurationError: If an encoder's features are not finite, or else not as many as the
        first's; the message names it.
    """
    from tff_ssl.errors import ConfigurationError
    from tff_ssl.evaluation import features, labels

    encoders: list[Encoder] = []
    for name, encoder in loaded.items():
        try:
            h = labels.finite_features(name, features.extract(encoder, images.images))
        except ValueError as error:
            raise ConfigurationError(f"encoder {name}: {error}") from error
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
    import tensorflow as tf

    from tff_ssl.errors import ConfigurationError
    from tff_ssl.losses import cka, cosine

    weights: dict[str, Any]
    try:
        weights = {
            "weights": _distances(a, b, "trainable"),
            "moving_averages": _distances(a, b, "non_trainable"),
        }
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
    from tff_ssl.analysis import weight_distances

    names = getattr(a.weight_names, kind)
    layers = weight_distances.layer_distances(getattr(a.weights, kind), getattr(b.weights, kind))
    return {
        "distance": float(layers.sum()),
        "layers": dict(zip(names, layers.tolist(), strict=True)),
    }


def _plane(encoders: list[Encoder], args: flags.FlagValues):
    """The `FeatureMap` of the concatenated features of all encoders."""
    import numpy as np

    from tff_ssl.analysis import feature_maps

    concatenated = np.concatenate([encoder.features for encoder in encoders])
    print(f"placing {len(concatenated):,} features in the plane", flush=True)
    return feature_maps.feature_map(concatenated, args.seed)


def _write(
    folder: pathlib.Path,
    report: dict[str, Any],
    encoders: list[Encoder],
    plane,
    images,
    classes,
    images_text: str,
) -> list[pathlib.Path]:
    """Writes the files and returns their paths; `images_text` describes the images in a title."""
    import numpy as np

    from launch.outputs import feature_plots, run_folder

    parts = np.split(plane.points, len(encoders))
    points = {encoder.name: part for encoder, part in zip(encoders, parts, strict=True)}
    title = (
        f"Features of {images_text}: PCA to {plane.components} dimensions "
        f"({plane.explained_variance:.0%} of the variance), then t-SNE"
    )
    with_first = [
        pair
        for pair in report["pairs"]
        if pair["encoders"][0] == encoders[0].name and pair["weights"]
    ]
    folder.mkdir(parents=True, exist_ok=True)
    feature_plots.draw_features(points, images.labels, classes, folder / "features.png", title)
    if with_first:
        feature_plots.draw_distances(with_first, folder / "distances.png")
    run_folder.write_json(folder / "visualize.json", report)
    names = ["features.png", *(["distances.png"] if with_first else []), "visualize.json"]
    return [folder / name for name in names]


def _print_table(pairs: list[dict[str, Any]]) -> None:
    """Prints a row for each pair, and why a pair has no distances."""
    titles = [", ".join(pair["encoders"]) for pair in pairs]
    width = max(map(len, titles)) + 2
    print(f"\n{'':{width}}{'d_w':>12}{'moving averages':>18}{'linear CKA':>13}{'mean cosine':>13}")
    for title, pair in zip(titles, pairs, strict=True):
        weights, moving = (_distance(pair[kind]) for kind in ("weights", "moving_averages"))
        print(
            f"{title:{width}}{weights:>12}{moving:>18}{pair['linear_cka']:13.4f}"
            f"{pair['mean_cosine']:13.4f}"
        )
    unlike = [(t, p) for t, p in zip(titles, pairs, strict=True) if "structures_differ" in p]
    if unlike:
        title, pair = unlike[0]
        more = f"; likewise {len(unlike) - 1} more" if len(unlike) > 1 else ""
        print(f"no distances between unlike structures: {title}: {pair['structures_differ']}{more}")
    print()


def _distance(figures: dict[str, Any] | None) -> str:
    """The figure as text; a dash where there are no such weights, or the structures differ."""
    return f"{figures['distance']:.4f}" if figures and figures["layers"] else "-"


if __name__ == "__main__":
    app.run(main)
