"""Loads the images that a configuration names."""

import pathlib
from collections.abc import Collection

from datasets import catalog
from datasets.image_dataset import ImageDataset
from launch.options.image_config import DataConfig
from tff_ssl.errors import ConfigurationError


def load_dataset(data: DataConfig) -> ImageDataset:
    """Loads the data set, and prints what the loader decided itself."""
    dataset = catalog.load(data.dataset, data.data_dir, data.image_size)
    for note in dataset.notes:
        print(f"note: {note}", flush=True)
    return dataset


def check_folder(dataset: str | None, data_dir: str | None, given: Collection[str]) -> None:
    """Raises `ConfigurationError` if `--data_dir` is given, and the data set does not read it."""
    if data_dir is not None and pathlib.Path(data_dir).absolute() == pathlib.Path("/"):
        raise ConfigurationError(
            f"--data_dir={data_dir} is the root of all files: give the folder of the images (is a "
            "variable not set?)"
        )
    if "data_dir" in given and dataset == "digits":
        kinds = {".npz": "npz", ".parquet": "parquet"}
        kind = kinds.get(pathlib.Path(data_dir or "").suffix, "case_folder")
        raise ConfigurationError(
            f"--data_dir={data_dir} is not read by --dataset=digits: add --dataset={kind} for "
            f"{'a folder of' if kind == 'case_folder' else 'its'} images, or leave it out"
        )


def check_image_shape(dataset: ImageDataset, image_shape: tuple[int, ...], encoder: str) -> None:
    """Checks that an encoder, which the message calls `encoder`, takes a data set's images."""
    shape = dataset.train.images.shape[1:]
    if shape != image_shape:
        taken, own = ("x".join(map(str, sizes)) for sizes in (image_shape, shape))
        advice = "; --image_size resizes" if shape[2] == image_shape[2] else ""
        raise ConfigurationError(
            f"{encoder} takes images of {taken}, and those of --dataset={dataset.name} are "
            f"{own}{advice}"
        )
