"""The features of a prepared TFDS set, checked before TFDS reads them.

`features.json` names a Python class for each feature, and TFDS imports the module of any class that
it does not know: a folder of data would then run code. Here only the classes of TFDS are known.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from datasets.errors import DatasetError

_PACKAGE = "tensorflow_datasets.core.features"
_KNOWN = {
    f"{_PACKAGE}.{name}"
    for name in (
        "audio_feature.Audio", "bounding_boxes.BBoxFeature", "class_label_feature.ClassLabel",
        "dataset_feature.Dataset", "feature.Tensor", "features_dict.FeaturesDict",
        "image_feature.Image", "labeled_image.LabeledImage", "scalar.Scalar",
        "sequence_feature.Sequence", "tensor_feature.Tensor", "text_feature.Text",
        "translation_feature.Translation",
        "translation_feature.TranslationVariableLanguages", "video_feature.Video",
    )
}  # fmt: skip
# Keys of a class: in the format of TFDS until 4.4, and in both spellings of the later one.
_KEYS = ("type", "pythonClassName", "python_class_name")


def check(folder: pathlib.Path) -> None:
    """Raises DatasetError if the features of a set are not all of TFDS's own classes."""
    path = folder / "features.json"
    if not path.exists():  # TFDS refuses sets of its releases before 4.0, which have none.
        return
    try:
        names = list(_classes(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, RecursionError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(f"data_dir: {path} cannot be read: {reason}") from error
    for name in names:
        if name not in _KNOWN:
            raise DatasetError(
                f"data_dir: {path} names the class {name}, which is none of TFDS and would be "
                "imported and run: only sets with TFDS's own features are read"
            )


def _classes(content: Any) -> Iterator[str]:
    """All names of classes in a content of JSON, also in texts that are JSON again."""
    if isinstance(content, dict):
        for key in _KEYS:
            if key in content and not isinstance(content[key], dict):
                yield str(content[key])
        content = list(content.values())
    if isinstance(content, list):
        for item in content:
            yield from _classes(item)
    elif isinstance(content, str) and content.lstrip()[:1] in ("{", "["):
        try:
            inside = json.loads(content)
        except ValueError:  # A description that begins like this.
            return
        yield from _classes(inside)
