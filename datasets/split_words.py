"""The words that people use for the splits of a data set, in names of folders and in tables."""

import re
import unicodedata
from collections.abc import Collection, Mapping

from datasets.errors import DatasetError

WORDS = {
    "training": "train", "train": "train", "testing": "test", "test": "test", "evaluation": "test",
    "eval": "test", "validation": "validation", "valid": "validation", "val": "validation",
    "development": "validation", "dev": "validation",
}  # fmt: skip
_WORD = re.compile("|".join(WORDS))  # Longer words come before their beginnings.
# A word, or several such as `trainval`, perhaps with what people append to it.
_PART = re.compile(rf"(?P<words>(?:{_WORD.pattern})+)(set|data|images?|imgs?|split)?")
_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])|[\W\d_]+")


def meanings(name: str) -> frozenset[str]:
    """The splits that a name means: one for `train_set` or `images_Train2017`, none for `cat`.

    A name has a word of a split if it stands between characters that are no letters, or begins with
    a capital letter.
    """
    parts = _BORDER.split(unicodedata.normalize("NFKC", name))
    matches = [match for part in parts if (match := _PART.fullmatch(part.lower()))]
    return frozenset(WORDS[word] for match in matches for word in _WORD.findall(match["words"]))


def of_folders(place: str, names: Collection[str]) -> Mapping[str, str]:
    """The split of each folder in a place; empty if none of them is named after a split.

    Raises:
      DatasetError: Some folders are named after splits and others are not, two mean the same split,
        one means two splits, or none is for training.
    """
    found = {name: meanings(name) for name in sorted(names)}
    named = [name for name, splits in found.items() if splits]
    others = [name for name, splits in found.items() if not splits]
    if not named:
        return {}
    remedy = f"if they are classes, move all folders of classes into one folder {place}/train"
    if others:
        raise DatasetError(
            f"data_dir: {place} has {shown(named)}, named after splits, and beside them "
            f"{shown(others)} with images: move these out of it; or, {remedy}"
        )
    for name, splits in found.items():
        if len(splits) > 1:
            raise DatasetError(
                f"data_dir: {place}/{name} is named after several splits, "
                f"{' and '.join(sorted(splits))}: rename it to train, validation or test"
            )
    of_name = {name: next(iter(splits)) for name, splits in found.items()}
    for split in sorted(set(of_name.values())):
        same = [name for name in named if of_name[name] == split]
        if len(same) > 1:
            raise DatasetError(
                f"data_dir: {place} has {shown(same)}, all named after the split {split}: join "
                f"them, or rename all but one; or, {remedy}"
            )
    if "train" not in of_name.values():
        raise DatasetError(
            f"data_dir: {place} has {shown(named)}, but no folder train/: name the folder of the "
            f"images to train on so; or, {remedy}"
        )
    return of_name


def shown(folders: Collection[str], most: int = 3) -> str:
    """Names of folders in words, such as `a/, b/, c/ and 4 more`."""
    names = [f"{name}/" for name in folders]
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
