"""Loads the images that a configuration names."""

import pathlib
from collections.abc import Collection, Iterable

from datasets import catalog, folder_images
from datasets.image_dataset import ImageDataset
from launch.options import settings
from launch.options.image_config import DataConfig
from launch.options.settings import Settings
from tff_ssl.errors import ConfigurationError

# Scripts whose results are by default in the folder of the run.
_WITHIN_RUN = ("evaluate", "export", "visualize", "reproduce")
# Flags that decide which images are read.
IMAGE_FLAGS = ("dataset", "data_dir", "image_size", "follow_links", "skip_broken")


def load_dataset(data: DataConfig, largest: int = folder_images.LARGEST) -> ImageDataset:
    """Loads the data set, and prints what the loader decided itself.

    Without `--image_size`, your own images have sides of at most `largest` pixels.
    """
    dataset = catalog.load(
        data.dataset, data.data_dir, data.image_size, data.follow_links, data.skip_broken, largest
    )
    print_notes(dataset.notes)
    return dataset


def print_notes(notes: Iterable[str]) -> None:
    """Prints what a loader decided; bytes of names that are no text are escaped."""
    for note in notes:
        kind = "" if note.startswith("warning: ") else "note: "
        print(f"{kind}{note.encode(errors='backslashreplace').decode()}", flush=True)


def check_folder(dataset: str | None, data_dir: str | None, given: Collection[str]) -> None:
    """Raises `ConfigurationError` for a `--data_dir` that is not read, or that is all files.

    The same holds for `--follow_links` and `--skip_broken`.
    """
    if data_dir is not None and pathlib.Path(data_dir).absolute() == pathlib.Path("/"):
        raise ConfigurationError(
            f"--data_dir={data_dir} is the root of all files: give the folder of the images (is a "
            "variable not set?)"
        )
    for name in ("follow_links", "skip_broken"):
        if name in given and dataset is not None and dataset not in catalog.reading(name):
            raise ConfigurationError(
                f"--{name} is for --dataset={' or '.join(catalog.reading(name))}, not {dataset}"
            )
    if "data_dir" in given and dataset == "digits":
        kinds = {".npz": "npz", ".parquet": "parquet"}
        kind = kinds.get(pathlib.Path(data_dir or "").suffix, "case_folder")
        raise ConfigurationError(
            f"--data_dir={data_dir} is not read by --dataset=digits: add --dataset={kind} for "
            f"{'a folder of' if kind == 'case_folder' else 'its'} images, or leave it out"
        )


def check_output(config: Settings) -> None:
    """Raises `ConfigurationError` if results would be written among the user's own images.

    A run that is resumed stays where it is: loaders leave the folders of runs out.
    """
    values = settings.flat(config)
    data_dir, output = values.get("data_dir"), values.get("output_dir")
    is_own = catalog.is_own(values.get("dataset", "case_folder"))
    if not data_dir or not is_own or values.get("resume") or "output_dir" not in values:
        return
    if not output and config.script in _WITHIN_RUN:
        return
    where = f"--output_dir={output}" if output else "--output_dir is not given, and results/"
    if pathlib.Path(output or "results").resolve().is_relative_to(pathlib.Path(data_dir).resolve()):
        raise ConfigurationError(
            f"{where} lies in --data_dir={data_dir}, where its pictures would be taken for images: "
            "name an --output_dir outside of it"
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
