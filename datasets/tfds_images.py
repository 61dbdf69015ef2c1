"""Loader for image-classification sets that TensorFlow Datasets (TFDS) has prepared.

Only the prepared folder is read (`tfds.builder_from_directory`): no builder code runs, no code that
the folder names (`tfds_features`), nothing is downloaded, and no folder is created.
"""

import contextlib
import difflib
import logging
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from datasets import pixel_store, tfds_features
from datasets.errors import DatasetError
from datasets.image_dataset import NO_LABEL, ImageDataset, Split, hold_out, resize

_READ_BATCH = 1000  # images
_NAME = re.compile(r"(?P<name>\w+)(/(?P<config>[\w.+-]+))?(:(?P<version>\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def load(
    name: str,
    data_dir: str | os.PathLike[str] | None,
    image_size: int | None,
    catalog_names: tuple[str, ...] = (),
) -> ImageDataset:
    """Loads `name` or `name/config`, with `:version` unless it is the newest, from its folder.

    The folder `data_dir`, by default TFDS's, holds `name/version/`. Images are resized to squares
    of `image_size` pixels, which is required if their sizes differ. The test split is TFDS's
    `test`, otherwise its `validation`, otherwise a fixed stratified fifth of `train`. Splits
    without labels, as the test splits of challenges are, do not count. Example ids
    number the examples of train, test and validation, in this order and in the order of the files.
    The error on an unknown name lists `catalog_names`.

    Raises:
      DatasetError: Unknown name; not prepared in `data_dir`; no `image` and `label` features;
        images of several sizes without `image_size`; unreadable files.
    """
    folder = _prepared_folder(name, data_dir, catalog_names)
    tfds_features.check(folder)
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    with _quiet_absl():
        try:
            builder = tfds.builder_from_directory(folder)
        except Exception as error:  # TFDS raises whatever its JSON and proto parsers raise
            reason = _first_line(error)
            raise DatasetError(f"data_dir: {folder} cannot be read: {reason}") from error
        _check_features(name, builder.info.features, image_size)
        if "train" not in builder.info.splits:
            raise DatasetError(
                f"dataset {name} has no train split, only {', '.join(sorted(builder.info.splits))}"
            )
        return _read(name, builder, image_size)


@contextlib.contextmanager
def _quiet_absl() -> Iterator[None]:
    """Suppresses TFDS's log messages below the level of errors."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def is_prepared(name: str, data_dir: str | os.PathLike[str] | None) -> bool:
    """Whether a set is prepared; its files are not read."""
    try:
        _prepared_folder(name, data_dir, ())
    except DatasetError:
        return False
    return True


def _prepared_folder(
    name: str, data_dir: str | os.PathLike[str] | None, catalog_names: tuple[str, ...]
) -> pathlib.Path:
    """The folder `root/name[/config]/version`; a DatasetError if there is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise DatasetError(
            f"dataset {name!r} is not a name: give one of {', '.join(catalog_names)} "
            "or a TFDS name such as mnist, name/config or name:1.2.3"
        )
    default = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    # A user without a home keeps the `~`.
    root = pathlib.Path(os.path.expanduser(default) if data_dir is None else data_dir)
    folder = root / match["name"]
    if match["config"]:
        folder = folder / match["config"]
    versions = _prepared_versions(folder)
    if match["version"]:
        versions = [version for version in versions if version.name == match["version"]]
    if versions:
        return versions[-1]
    configs = [path for path in _subfolders(folder) if _prepared_versions(path)]
    if configs and not match["version"]:
        if len(configs) == 1:
            return _prepared_versions(configs[0])[-1]
        choice = ", ".join(f"{match['name']}/{path.name}" for path in configs)
        raise DatasetError(f"dataset {name} has several configurations in {root}: give {choice}")
    raise _not_prepared(name, match["name"], root, data_dir is not None, catalog_names)


def _subfolders(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _prepared_versions(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders `folder/1.2.3` with a `dataset_info.json`, oldest version first."""
    versions = [
        path
        for path in _subfolders(folder)
        if _VERSION.fullmatch(path.name) and (path / "dataset_info.json").is_file()
    ]
    return sorted(versions, key=lambda path: [int(part) for part in path.name.split(".")])


def _not_prepared(
    name: str,
    base_name: str,
    root: pathlib.Path,
    root_is_given: bool,
    catalog_names: tuple[str, ...],
) -> DatasetError:
    """The error for a set that is not on disk: its name is unknown, or it is not prepared."""
    if base_name not in catalog_names:
        import tensorflow_datasets as tfds

        known = tfds.list_builders(with_community_datasets=False)
        if base_name not in known:
            near = difflib.get_close_matches(base_name, {*catalog_names, *known}, n=3)
            hint = f" (did you mean {' or '.join(near)}?)" if near else ""
            return DatasetError(
                f"unknown dataset {name!r}{hint}: give one of {', '.join(catalog_names)}, or one "
                f"of the {len(known)} TFDS names that `tfds.list_builders()` prints"
            )
    # With this interpreter's path, the command can be pasted into any shell.
    prepare = f"{shlex.quote(sys.executable)} -m tensorflow_datasets.scripts.cli.main build {name}"
    if root_is_given:
        problem = f"cannot be found: {root} does not exist"
        if root.is_dir():
            problem = f"is not prepared in {root}"
        return DatasetError(
            f"data_dir: dataset {name} {problem}; give the folder that holds "
            f"{base_name}/<version>/dataset_info.json, or prepare it with `{prepare} "
            f"--data_dir={root}`"
        )
    return DatasetError(
        f"dataset {name} is not prepared in {root}: pass --data_dir, or prepare it with `{prepare}`"
    )


def _check_features(name: str, features: Any, image_size: int | None) -> None:
    """Raises DatasetError unless the set consists of images with one class label each."""
    import tensorflow_datasets as tfds

    keys = sorted(features) if hasattr(features, "keys") else []
    for key, kind in (("image", tfds.features.Image), ("label", tfds.features.ClassLabel)):
        if key not in keys:
            raise DatasetError(f"dataset {name} has no feature `{key}`, only {', '.join(keys)}")
        if not isinstance(features[key], kind):
            raise DatasetError(
                f"dataset {name}: its feature `{key}` is no {kind.__name__} but "
                f"{_kind(features[key])}"
            )
    height, width, channels = features["image"].shape
    if channels not in (1, 3, 4) or np.dtype(features["image"].np_dtype) != np.uint8:
        raise DatasetError(f"dataset {name} is not of uint8 images with 1, 3 or 4 channels")
    if image_size is None and None in (height, width):
        raise DatasetError(f"image_size: dataset {name} has images of several sizes; give one size")


def _kind(feature: Any) -> str:
    """The type of a feature, or of its values if it is a plain tensor, such as `int64`."""
    kind = type(feature).__name__
    return np.dtype(feature.np_dtype).name if kind in ("Tensor", "Scalar") else kind


def _read(name: str, builder: Any, image_size: int | None) -> ImageDataset:
    found = [key for key in ("test", "validation") if key in builder.info.splits]
    labelled = [key for key in found if _has_labels(name, builder, key)]
    notes = [
        f"the split {key} of {name} has no labels, and is left out"
        for key in found
        if key not in labelled
    ]
    train = _read_split(name, builder, "train", image_size, first_id=0)
    if not labelled:
        train, test = hold_out(train)
    else:
        test = _read_split(name, builder, labelled[0], image_size, first_id=len(train))
    validation = None
    if len(labelled) > 1:
        first_id = len(train) + len(test)
        validation = _read_split(name, builder, labelled[1], image_size, first_id)
    if len(test) == 0:
        notes.append(
            "there are no test images: no class has three images, of which one is held out"
        )
    elif notes:
        test_name = f"the split {labelled[0]}" if labelled else "a fifth of the split train"
        notes.append(f"the test images are those of {test_name}")
    classes = tuple(builder.info.features["label"].names)
    return ImageDataset(name, train, test, classes, validation, tuple(notes))


def _has_labels(name: str, builder: Any, split: str) -> bool:
    """Whether an example of a split has a label; images are not decoded for it."""
    import tensorflow_datasets as tfds

    decoders = tfds.decode.PartialDecoding({"label": True})
    try:
        dataset = builder.as_dataset(split=split, shuffle_files=False, decoders=decoders)
        return any(element["label"] >= 0 for element in dataset.as_numpy_iterator())
    except Exception as error:  # the exceptions of TF and TFDS have no common base class
        raise _unreadable(name, builder, split, error) from error


def _read_split(
    name: str, builder: Any, split: str, image_size: int | None, first_id: int
) -> Split:
    """One split, in the order of its files."""
    import tensorflow_datasets as tfds

    decoders = tfds.decode.PartialDecoding({"image": True, "label": True})
    # Files are read one after another, so that the order is always the same.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    height, width, channels = builder.info.features["image"].shape
    shape = (image_size, image_size) if image_size is not None else (height, width)
    images = pixel_store.empty((builder.info.splits[split].num_examples, *shape, channels))
    all_labels, done = np.empty(len(images), np.int32), 0
    try:
        dataset = builder.as_dataset(
            split=split, shuffle_files=False, decoders=decoders, read_config=config
        )
        one_size = None not in (height, width)
        if one_size:  # reading a batch is ten times as fast as reading its images one by one
            dataset = dataset.batch(_READ_BATCH)
        for element in dataset.prefetch(2).as_numpy_iterator():
            batch = element["image"] if one_size else element["image"][np.newaxis]
            if image_size is not None:
                batch = np.stack([resize(image, image_size) for image in batch])
            images[done : done + len(batch)] = batch
            all_labels[done : done + len(batch)] = element["label"]
            done += len(batch)
        if done < len(images):
            raise EOFError(f"{done:,} of {len(images):,} images")
    except Exception as error:  # the exceptions of TF and TFDS have no common base class
        raise _unreadable(name, builder, split, error) from error
    ids = np.arange(first_id, first_id + len(all_labels), dtype=np.int64)
    known_labels = np.where(all_labels < 0, np.int32(NO_LABEL), all_labels)
    return Split(images, known_labels, ids)


def _unreadable(name: str, builder: Any, split: str, error: Exception) -> DatasetError:
    return DatasetError(
        f"data_dir: split {split} of dataset {name} in {builder.data_dir} cannot be read: "
        f"{_first_line(error)}"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
