"""Pretraining from a program; `tff_ssl` has these functions under its own name.

They use what the scripts use: the same options and default presets, rounds and evaluation.
"""

import dataclasses
import functools
import inspect
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff

from datasets import catalog
from datasets import partition as partitions
from datasets.image_dataset import NO_LABEL, ImageDataset, Split
from launch.options import encoders, keywords
from launch.options.run_config import EvaluationConfig
from launch.probes import probing, result_text
from launch.runs import federated, runtimes, training
from tff_ssl import whole_files
from tff_ssl.deployment.encoder import Encoder, check_values, load_encoder
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.evaluation import features, linear_probe
from tff_ssl.kinds.protocol import PlannedRun
from tff_ssl.models import from_keras
from tff_ssl.models.dual_encoder import EncoderNetwork
from tff_ssl.reporting import checked_files

Callback = Callable[[int, dict[str, float]], None]
_PROTOCOLS = ("linear", "knn")


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    >>> run.encoder(images).shape  # float32 [n, features]
    (240, 64)
    >>> len(run.metrics), run.metrics[0]["loss"] > 0  # A dictionary for each round.
    (2, True)
    >>> run.save("my_run")

    Attributes:
      encoder: The pretrained encoder, a function of images.
      metrics: A dictionary for each round, with its loss among others.
      folder: Folder with `encoder/` and `metrics.csv`; a temporary one if `train` got none.
    """

    encoder: Encoder
    metrics: list[dict[str, float]]
    folder: pathlib.Path

    def save(self, folder: str | pathlib.Path) -> None:
        """Writes `encoder/` and `metrics.csv`; `load_run` and `load_encoder` read the folder.

        So do the scripts, to which those that need the images have to be named again.
        """
        folder = pathlib.Path(folder)
        if (folder / "encoder").exists():
            raise ConfigurationError(f"{folder} already holds an encoder: name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("metrics.csv", "config.json", "partition.json"):
            if (self.folder / name).exists():
                whole_files.write(folder / name, (self.folder / name).read_bytes())
        # The encoder comes last: a folder that holds one is complete.
        with whole_files.replacing_folder(folder / "encoder") as new:
            shutil.copytree(self.folder / "encoder", new, dirs_exist_ok=True)


def train(
    clients: Mapping[str, Any] | Sequence[Any] | tff.simulation.datasets.ClientData,
    algorithm: str = "dcco",
    encoder: str | EncoderNetwork | tf.keras.Model | None = None,
    rounds: int | None = None,
    *,
    seed: int = 0,
    folder: str | pathlib.Path | None = None,
    callback: Callback | None = None,
    **options: Any,
) -> Run:
    """Pretrains an encoder on the clients' images, and returns when it is done.

    >>> clients = {"anna": images[:120], "ben": images[120:]}
    >>> run = tff_ssl.train(clients, algorithm="dcco", rounds=2, views="affine")
    >>> run.encoder(images[:5]).shape
    (5, 64)

    Args:
      clients: The images of each client: a dictionary, a list, or a `ClientData` of TFF whose
        elements have an `image`. Whole numbers are from 0 to 255, floating-point numbers from 0
        to 1. A pair (images, labels) has class labels, which only supervised objectives read:
        whole numbers, negative for an image without a label.
      algorithm: Name of the algorithm, or `package.module:ENTRY`.
      encoder: Name of an encoder as for `--encoder`, a Keras model, or one of
        `tff_ssl.models.from_keras`. None for that of `init_from`, or tiny.
      rounds: Number of rounds; None for the default preset's.
      seed: Seed of all randomness.
      folder: Folder for checkpoints and results. A run that was stopped there continues. None for a
        temporary one, which ends with the program.
      callback: Is called after each round with its number from 1 and its metrics.
      options: Flags of `launch.pretrain` and hyperparameters of the algorithm by name, such as
        `clients_per_round=8`, `temperature=0.2`, or `lambda_=20` for a keyword of Python.

    Raises:
      ConfigurationError: If a setting is impossible; the message names it.
      DatasetError: If the images are none.
    """
    dataset = _dataset(clients)
    if isinstance(encoder, tf.keras.Model):
        encoder = from_keras(encoder)
    if encoder is not None and not isinstance(encoder, str):
        encoder = encoders.register(encoder)
    if encoder is None and "init_from" not in options:
        encoder = "tiny"
    scratch = None
    if folder is None:
        scratch = tempfile.TemporaryDirectory(prefix="tff_ssl_run_")
        folder = scratch.name
    config = keywords.read(algorithm, encoder, rounds, seed, folder, options)
    federated.run(config, functools.partial(_train, callback), dataset)
    run = load_run(folder)
    if scratch is not None:
        _kept.append(scratch)
    return run


def _train(
    callback: Callback | None,
    built: federated.Built,
    planned: PlannedRun,
    dataset: ImageDataset,
    folder: pathlib.Path,
    runtime: runtimes.Chosen,
) -> None:
    """Trains and writes the encoder, without an evaluation."""
    with federated.simulate(built, planned, folder, runtime) as simulation:
        watched = simulation if callback is None else _Watched(simulation, callback)
        training.train(watched, built.model, dataset, folder, built.chosen.config)


_kept: list[tempfile.TemporaryDirectory] = []  # Folders that are removed when the program ends.


def load_run(folder: str | pathlib.Path) -> Run:
    """Reads a run that a script or `Run.save` wrote.

    >>> run = tff_ssl.load_run("my_run")
    >>> len(run.metrics)  # One entry for each round.
    2

    Raises:
      ConfigurationError: If the folder holds no encoder, or a damaged one.
    """
    folder = pathlib.Path(folder)
    path = folder / "metrics.csv"
    metrics = checked_files.read_metrics(path) if path.exists() else []
    return Run(load_encoder(folder), metrics, folder)


def evaluate(
    encoder: Callable[[npt.NDArray], npt.NDArray],
    train: tuple[npt.ArrayLike, npt.ArrayLike],
    test: tuple[npt.ArrayLike, npt.ArrayLike],
    protocol: str = "linear",
    *,
    labels_per_class: Sequence[int] = (1, 5),
    label_draws: int = 5,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Evaluates an encoder with labels, beside raw pixels.

    >>> train, test = (images[:160], labels[:160]), (images[160:], labels[160:])
    >>> one_label, five_labels = tff_ssl.evaluate(run.encoder, train, test)
    >>> 0 < five_labels["accuracy"] < 1
    True
    >>> 0 < five_labels["baselines"]["raw_pixels"]["accuracy"] < 1
    True

    Args:
      encoder: Function of images to features, such as `run.encoder`.
      train: Images and class labels, whole numbers, of which some are used for training. Negative
        labels are unknown.
      test: Images and class labels; those without a label are not scored.
      protocol: `linear` (logistic regression on few labels) or `knn` (all labels).
      labels_per_class: Numbers of labels a class, a result for each.
      label_draws: Number of random draws of the labels; results are their means.
      seed: Seed of the draws.

    Returns:
      Results as in `result.json`, with `accuracy` from 0 to 1 and `baselines` among others.
    """
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(
            f"protocol must be one of {', '.join(_PROTOCOLS)}; got {protocol!r}"
        )
    given = []
    for name, pair in (("train", train), ("test", test)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ConfigurationError(f"{name} must be a pair, (images, labels)")
        given.append((name, pair[0], np.asarray(pair[1])))
    splits, names = _splits(given)
    dataset = ImageDataset(catalog.ARRAYS, splits[0], splits[1], names)
    config = EvaluationConfig(
        labels_per_class=tuple(labels_per_class), label_draws=label_draws, baselines=("raw_pixels",)
    )
    kinds = {linear_probe.ENCODER: encoder, "raw_pixels": features.raw_pixels}
    if protocol == "knn":
        results = probing.knn_results(dataset, kinds, config)
    else:
        results = probing.linear_probes(dataset, kinds, config, seed)
    return result_text.with_class_names(results, names)


def embed(
    encoder: Callable[[npt.NDArray], npt.NDArray], images: npt.ArrayLike
) -> npt.NDArray[np.float32]:
    """The features of images, float32 [n, features].

    Images of another height or width than `encoder.image_shape` are resized.

    >>> tff_ssl.embed(tff_ssl.load_encoder("my_run"), images).shape
    (240, 64)
    """
    return np.asarray(encoder(np.asarray(images)), np.float32)


def partition(
    labels: npt.ArrayLike, name: str = "dirichlet", seed: int = 0, **settings: Any
) -> list[npt.NDArray[np.int64]]:
    """Divides labelled examples among clients: the indices of each client's examples.

    >>> owners = tff_ssl.partition(labels, "dirichlet", alpha=0.1, num_clients=20)
    >>> clients = [images[owner] for owner in owners]
    >>> len(clients), len(clients[0])
    (20, 12)

    Args:
      labels: Class labels, whole numbers [n].
      name: Name of a partition, as for `--partition`.
      seed: Seed of the partition.
      settings: Settings of `datasets.partition.make`, such as `alpha`.
    """
    array = np.asarray(labels)
    (split,), _ = _splits([("labels", np.zeros([len(array), 1, 1, 1], np.uint8), array)])
    known = list(inspect.signature(partitions.make).parameters)[3:]
    if unknown := [setting for setting in settings if setting not in known]:
        raise ConfigurationError(
            f"{unknown[0]} is no setting of a partition; {', '.join(known)} are"
        )
    return list(partitions.make(name, split, seed, **settings))


class _Watched:
    """A simulation whose metrics are shown to a callback."""

    def __init__(self, simulation: Any, callback: Callback):
        self._simulation, self._callback = simulation, callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulation, name)

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        state, metrics = self._simulation.run_round(state, round_number)
        self._callback(round_number + 1, metrics)
        return state, metrics


def _dataset(
    clients: Mapping[str, Any] | Sequence[Any] | tff.simulation.datasets.ClientData,
) -> ImageDataset:
    """The clients' images as a data set whose cases are the clients."""
    if isinstance(clients, tff.simulation.datasets.ClientData):
        clients = {name: _read(clients, name) for name in clients.client_ids}
    named = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
    if not named:
        raise ConfigurationError("clients: there are none")
    given = []
    for name, value in named.items():
        pair = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
        given.append((f"client {name}", *pair))
    splits, class_names = _splits(given)
    shapes = {split.images.shape[1:] for split in splits}
    if len(shapes) > 1:
        raise ConfigurationError(
            f"clients: images must have one shape, and have {', '.join(map(str, sorted(shapes)))}"
        )
    images, labels = (
        np.concatenate([getattr(split, field) for split in splits])
        for field in ("images", "labels")
    )
    # Padded, so that clients keep their order.
    width = len(str(len(splits)))
    ids = [f"{k:0{width}}" for k, split in enumerate(splits) for _ in range(len(split))]
    train = Split(images, labels, np.arange(len(images)), np.array(ids, object))
    return ImageDataset(catalog.ARRAYS, train, train.take(slice(0, 0)), class_names)


def _read(clients: tff.simulation.datasets.ClientData, name: str) -> tuple[Any, Any]:
    """The images of a client of TFF, and its labels or None."""
    elements = list(clients.create_tf_dataset_for_client(name).as_numpy_iterator())
    if not elements or not isinstance(elements[0], Mapping) or "image" not in elements[0]:
        raise ConfigurationError(f"client {name}: elements must be dictionaries with an `image`")
    labels = [element["label"] for element in elements] if "label" in elements[0] else None
    return np.stack([element["image"] for element in elements]), labels


def _splits(given: Iterable[tuple[str, Any, Any]]) -> tuple[list[Split], tuple[str, ...]]:
    """Splits of names (for errors), images and labels; and the names of their classes.

    The classes are the labels that occur, in order, as for `--dataset=npz`.
    """
    checked = [_check(*one) for one in given]
    classes = sorted({label for _, labels in checked for label in labels if label >= 0})
    indices = {label: i for i, label in enumerate(classes)}
    splits = []
    for images, labels in checked:
        numbers = np.array([indices.get(label, NO_LABEL) for label in labels], np.int32)
        splits.append(Split(images, numbers, np.arange(len(images))))
    return splits, tuple(map(str, classes))


def _check(
    name: str, images: npt.ArrayLike, labels: Any
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Images as uint8, and labels as Python's integers, which have no largest value; checked."""
    array = np.asarray(images)
    if array.ndim != 4 or not len(array):
        raise ConfigurationError(
            f"{name}: images must be [n, height, width, channels] with n > 0; got "
            f"{list(array.shape)}"
        )
    if array.shape[1] in (1, 3, 4) and array.shape[3] > 4:
        raise ConfigurationError(
            f"{name}: images must be [n, height, width, channels]; {list(array.shape)} looks like "
            "[n, channels, height, width]: use numpy.moveaxis(images, 1, -1)"
        )
    with naming(name):
        check_values(array)
    pixels = np.round(array * 255.0) if array.dtype.kind == "f" else array
    known = np.full(len(array), NO_LABEL) if labels is None else np.asarray(labels)
    if known.shape != (len(array),) or known.dtype.kind not in "iu":
        raise ConfigurationError(f"{name}: {len(array)} images need as many whole-number labels")
    return pixels.astype(np.uint8), known.tolist()
