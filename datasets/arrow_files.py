"""Tables of encoded images as Hugging Face `datasets` writes them: Parquet, and `save_to_disk`.

Both are read with pyarrow, which TFDS brings. The package of Hugging Face resolves beside this
project's pins, but it is called `datasets` like this one, and a program cannot import both.

Images are in the column `image`, or else in the first one of images; labels in the column `label`,
or else in the first one of class labels. A column named as in `CASES` has the owners of the images.
Splits are named in the paths of Parquet files (`data/train-00000-of-00001.parquet`).
"""

import bisect
import functools
import io
import itertools
import json
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from PIL import Image

from datasets import case_table, image_file, listing, split_words
from datasets.case_table import NO_SPLIT, Problems, Row
from datasets.errors import DatasetError
from datasets.listing import Layout, Listing

CASES = ("case_id", "client_id", "writer_id")


class _Columns(NamedTuple):
    """Columns of images, labels and cases, and the names of the classes, if there are any."""

    image: str
    label: str | None
    case: str | None
    class_names: tuple[str, ...]


class _Table(NamedTuple):
    """A file: its split, schema and number of rows."""

    path: pathlib.Path
    split: str
    schema: Any
    size: int
    values: Callable[[str], list[Any]]  #: Name of a column -> its values.
    #: Name of the column of images, and number of a row -> its value.
    image: Callable[[str, int], Any]


def layout(name: str, root: pathlib.Path) -> Layout:
    """The layout of a data set `parquet` or `hf_disk`; a DatasetError if it cannot be read."""
    columns = _columns(next(_tables(name, root, [])))
    return Layout.CASES if columns.case else Layout.CLASSES if columns.label else Layout.IMAGES


def check(name: str, root: pathlib.Path, skip_broken: bool = False) -> Listing:
    """Lists the images of a data set `parquet` or `hf_disk`; they become RGB.

    Raises:
      DatasetError: No such files, unreadable ones, no images, or files with different columns; and,
        with the row, a missing or broken image.
    """
    notes: list[str] = []
    tables = list(_tables(name, root, notes))
    columns = _columns(tables[0])
    rows: list[Row] = []
    for table in tables:
        if _columns(table) != columns:
            raise DatasetError(
                f"{table.path} has other columns or classes than {tables[0].path}: name the folder "
                "of one data set"
            )
        labels = _texts(table, columns.label, columns.class_names)
        cases = _texts(table, columns.case, has_negative=False)
        place = table.path.relative_to(root) if table.path != root else table.path.name
        for i, (label, case) in enumerate(zip(labels, cases, strict=True)):
            case = case or (f"{place} row {i}" if columns.case else "")  # Its own, if unknown.
            rows.append(Row(len(rows) + 1, f"{place} row {i}", case, label, table.split))
    if not rows:
        raise DatasetError(f"data_dir: {root} has no rows")
    ends = list(itertools.accumulate(table.size for table in tables))

    def open_row(row: Row) -> Image.Image:
        which = bisect.bisect_right(ends, row.number - 1)
        table = tables[which]
        value = table.image(columns.image, row.number - 1 - ends[which] + table.size)
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise DatasetError(f"no image in the column {columns.image}: embed it, or drop the row")
        return image_file.open_image(io.BytesIO(content))

    if not columns.class_names:
        rows = case_table.without_missing(rows, notes, every_negative=True)
    rows, more = listing.validation_as_test(rows)
    used = [f"images are in the column {columns.image}"]
    used += [f"labels in {columns.label}"] * bool(columns.label)
    used += [f"clients in {columns.case}"] * bool(columns.case)
    notes = [", ".join(used), *notes, *more]
    classes = columns.class_names or listing.sorted_classes(row.label for row in rows)
    return listing.of_files(
        name, root, rows, open_row, Problems(root), notes, "a file or split named test", classes,
        skip_broken,
    )  # fmt: skip


def _tables(name: str, root: pathlib.Path, notes: list[str]) -> Iterator[_Table]:
    """The files of the splits, at least one; adds a note on others."""
    import pyarrow as pa

    found = _parquet_files(root) if name == "parquet" else _saved_files(root)
    if any(split == "train" for _, split in found):
        others = [path.name for path, split in found if split == NO_SPLIT]
        if others:
            notes.append(f"{len(others)} files of no split are left out, such as {others[0]}")
            found = [(path, split) for path, split in found if split != NO_SPLIT]
    if not found:
        raise DatasetError(f"data_dir: {root} lists no files of images")
    for path, split in found:
        try:
            yield (_parquet_table if name == "parquet" else _saved_table)(path, split)
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def _parquet_files(root: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    """Parquet files in the order of their names, with their splits."""
    if root.is_file():
        return [(root, _split_of(root.name))]
    names = [path.relative_to(root) for path in sorted(root.rglob("*.parquet")) if path.is_file()]
    # Programs write hidden files, of the same ending, beside those that they copy.
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    if not names:
        raise DatasetError(f"data_dir: {root} has no files .parquet")
    return [(root / name, _split_of(str(name))) for name in names]


def _saved_files(root: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    """The Arrow files that `save_to_disk` lists in the folder, with their splits."""
    try:
        splits = root / "dataset_dict.json"
        names = json.loads(splits.read_text())["splits"] if splits.exists() else ["."]
        return [
            (root / name / pathlib.PurePath(file["filename"]).name, _split_of(name))
            for name in map(str, names)
            for file in json.loads((root / name / "state.json").read_text())["_data_files"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = "it has no state.json" if isinstance(error, FileNotFoundError) else error
        raise DatasetError(
            f"data_dir: {root} is not a folder that save_to_disk wrote: {reason}"
        ) from error


def _split_of(name: str) -> str:
    """The split that a file's name means, or else that of the nearest folder in its path."""
    for part in reversed(pathlib.PurePath(name).parts):
        splits = split_words.meanings(part)
        if len(splits) > 1:
            raise DatasetError(
                f"data_dir: {name} is named after several splits, {' and '.join(sorted(splits))}: "
                "rename it"
            )
        if splits:
            return next(iter(splits))
    return NO_SPLIT


def _parquet_table(path: pathlib.Path, split: str) -> _Table:
    """A Parquet file, of which the two groups of rows that were read last are in memory."""
    from pyarrow import parquet

    file, lock = parquet.ParquetFile(path), threading.Lock()
    groups = range(file.num_row_groups)
    ends = list(itertools.accumulate(file.metadata.row_group(k).num_rows for k in groups))

    @functools.lru_cache(maxsize=2)
    def read_group(column: str, group: int) -> Any:
        return file.read_row_group(group, columns=[column]).column(0)

    def image(column: str, row: int) -> Any:
        group = bisect.bisect_right(ends, row)
        with lock:  # Otherwise several threads would read the same group.
            values = read_group(column, group)
        return values[row - ends[group] + len(values)].as_py()

    def values(column: str) -> list[Any]:
        return file.read(columns=[column]).column(0).to_pylist()

    return _Table(path, split, file.schema_arrow, file.metadata.num_rows, values, image)


def _saved_table(path: pathlib.Path, split: str) -> _Table:
    """A file of Arrow's streaming format, which is mapped into memory and read on request."""
    import pyarrow as pa

    table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    return _Table(
        path, split, table.schema, table.num_rows,
        lambda column: table.column(column).to_pylist(),
        lambda column, row: table.column(column)[row].as_py(),
    )  # fmt: skip


def _columns(table: _Table) -> _Columns:
    """The columns of a table, by the features in its metadata, or by their types."""
    import pyarrow as pa

    def is_image(field: Any) -> bool:
        if pa.types.is_struct(field.type):
            return field.type.get_field_index("bytes") >= 0
        return pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)

    images = [field.name for field in table.schema if is_image(field)]
    if not images:
        shown = ", ".join(f"{field.name} ({field.type})" for field in table.schema)
        raise DatasetError(
            f"{table.path} has no column of images, which hold the bytes of PNG or JPEG files, "
            f"alone or as the field bytes; its columns are {shown}"
        )
    names = table.schema.names
    kinds = _names_of_classes(table)
    label = next((n for n in ("label", *kinds) if n in names), None)
    case = next((column for column in CASES if column in names), None)
    image = "image" if "image" in images else images[0]
    return _Columns(image, label, case, tuple(map(str, kinds.get(label or "") or ())))


def _names_of_classes(table: _Table) -> dict[str, list[Any] | None]:
    """The names of classes in Hugging Face's metadata, by column of the type `ClassLabel`."""
    metadata = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = (json.loads(metadata).get("info") or {}).get("features") or {}
        # A feature of fields is a dictionary, too, whose fields may have any name.
        kinds = {
            name: of.get("names")
            for name, of in features.items()
            if isinstance(of, dict) and of.get("_type") == "ClassLabel"
        }
        if not all(isinstance(of, list | None) for of in kinds.values()):
            raise ValueError("names of classes are no list")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(
            f"{table.path}: its metadata, huggingface, cannot be read ({error}): write the file "
            "anew, or remove them"
        ) from error
    return {name: kinds[name] for name in table.schema.names if name in kinds}


def _texts(
    table: _Table, column: str | None, names: Sequence[str] = (), has_negative: bool = True
) -> list[str]:
    """The values of a column as text: names of classes, where there are; empty if unknown.

    Negative numbers are unknown, too, if there are names, or unless the values may have them.
    """
    if column is None:
        return [""] * table.size
    texts = []
    for i, value in enumerate(table.values(column)):
        is_negative = isinstance(value, int) and value < 0
        if value is None or (is_negative and (names or not has_negative)):
            texts.append("")
        elif names and isinstance(value, int) and value < len(names):
            texts.append(names[value])
        elif not names and isinstance(value, int | str):
            texts.append(str(value))
        else:
            allowed = f"0 to {len(names) - 1}" if names else "a whole number or a text"
            raise DatasetError(f"{table.path} row {i}: {column} is {value!r}: it must be {allowed}")
    return texts
