"""The records of an experiment's runs, from a folder with a folder for each run or one text file.

A line of the file is a JSON object:

- the first one identifies the reproduction: `experiment`, `scale`, `dataset` and `rounds`;
- `partition` names a partition, beside the content of its picture (`datasets.describe.picture`);
- `cell` without `seed` has the `flags` and `evaluations` of the cell's runs that follow;
- `cell` and `seed` is a run: the fields of its summary, and its `results` by the name of their file
  without extension; or `failed`, why its training diverged.

Partitions and cells are sorted by name and runs by seed, so that versions can be compared.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import checked_files

# Forms of entries of a result that pages read, if it has them.
_SCORES = dict.fromkeys(
    ("accuracy", "accuracy_std", "balanced_accuracy", "balanced_accuracy_std"), float
)
_COUNTS = dict.fromkeys(
    ("effective_rank", "effective_rank_untrained", "test_examples", "train_images", "draws",
     "bytes_down_per_client_and_round", "bytes_up_per_client_and_round"), (float, None),
)  # fmt: skip
_FORMS = {
    **_SCORES, **_COUNTS, "baselines": {str: {"accuracy": float}},
    "class_accuracies": {str: (float, None)},
}  # fmt: skip
# Columns of metrics.csv with costs of a round; the first two only without a server.
COSTS = ("simulated_time", "examples_trained", "bytes")
IDENTITY = "experiment.json"  # File that identifies the reproduction in a folder of runs.
SUMMARY = "done.json"  # File in the folder of a run that is done.
FAILED = "failed.json"  # File in the folder of a run whose training diverged.
_SETTINGS = ("flags", "evaluations")  # Fields of a summary that all seeds share.


@dataclasses.dataclass(frozen=True)
class Run:
    """The record of a run."""

    source: str  #: Folder of the run, or file and line, for messages.
    #: Content of `result.json` and of `result_*.json`, by their names without extension.
    results: Mapping[str, Any]
    #: `seconds` of all scripts, `evaluations`, `flags`, and the fields of `summarize_training`.
    #: Empty until the run and its evaluations are done.
    summary: Mapping[str, Any]
    #: `reason`, why the training diverged, and `flags`. Empty if it did not.
    failure: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: The fields of `summarize_training` of a run that is not done.
    progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        """All entries of the results, each with `protocol` and `labels`."""
        return entries(self.results)

    @property
    def training(self) -> Mapping[str, Any]:
        """The fields of `summarize_training`, even before the run is done."""
        return self.progress or self.summary

    @property
    def is_over(self) -> bool:
        """Whether the run is done or has failed."""
        return bool(self.summary or self.failure)


@dataclasses.dataclass(frozen=True)
class Records:
    """The records of a reproduction."""

    #: `experiment`, `scale`, `dataset` and `rounds`; empty if nothing was reproduced.
    identity: Mapping[str, Any]
    runs: Mapping[str, dict[int, Run]]  #: The runs by cell and seed.
    #: Contents of the partitions' pictures, by name of the partition.
    partitions: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def of_cell(self, cell: str) -> list[Run]:
        """The runs of a cell, sorted by seed."""
        return [run for _, run in sorted(self.runs.get(cell, {}).items())]

    def all_runs(self) -> list[Run]:
        return [run for cell in sorted(self.runs) for run in self.of_cell(cell)]


def read_folder(folder: pathlib.Path) -> Records:
    """Reads the records of a folder of runs; the run of cell C with seed s is in `C/seed<s>/`.

    Raises:
      ConfigurationError: If a file cannot be read.
    """
    identity = folder / IDENTITY
    runs: dict[str, dict[int, Run]] = {}
    for path in folder.glob("*/seed*"):
        seed = re.fullmatch(r"seed(\d+)", path.name)
        if seed and path.is_dir():
            runs.setdefault(path.parent.name, {})[int(seed[1])] = read_run(path)
    partitions = {
        path.parent.name: content["picture"]
        for path in folder.glob("partitions/*/partition.json")
        if "picture" in (content := checked_files.read_json(path))
    }
    return Records(checked_files.read_json(identity) if identity.exists() else {}, runs, partitions)


def read_run(folder: pathlib.Path) -> Run:
    """Reads the record of a run's folder; a ConfigurationError if a file cannot be read."""
    failed, summary = folder / FAILED, read_summary(folder)
    return Run(
        str(folder),
        read_results(folder),
        summary,
        # The file itself shows the failure, whatever it contains.
        {"reason": "", **checked_files.read_json(failed)} if failed.exists() else {},
        {} if "knn" in summary else summarize_training(folder),
    )


def read_results(folder: pathlib.Path) -> dict[str, Any]:
    """Reads the result files of a run's folder: their contents by name without extension.

    Raises:
      ConfigurationError: If a file cannot be read, or an entry lacks protocol or labels.
    """
    results = {
        path.stem: checked_files.read_json(path) for path in sorted(folder.glob("result*.json"))
    }
    for name, content in results.items():
        _check_result(content, f"{folder}/{name}.json", "delete the run's folder")
    return results


def entries(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All entries of result files, each with `protocol` and `labels`."""
    return [entry for content in results.values() for entry in _as_list(content)]


def read_summary(folder: pathlib.Path) -> dict[str, Any]:
    """Reads the summary of a run's folder, see `Run.summary`."""
    path = folder / SUMMARY
    return dict(checked_files.read_json(path)) if path.exists() else {}


def _check_result(content: Any, where: str, remedy: str) -> None:
    for entry in _as_list(content):
        if not checked_files.has_form(entry, {"protocol": str, "labels": object}):
            raise ConfigurationError(f"{where} has an entry without protocol or labels: {remedy}")
        for name, form in _FORMS.items():
            if name in entry and not checked_files.has_form(entry[name], form):
                raise ConfigurationError(f"{where} has {name}={entry[name]!r:.40}: {remedy}")


def _as_list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def summarize_training(run: pathlib.Path) -> dict[str, Any]:
    """Summarizes `metrics.csv`, which is too large to keep for many runs.

    Returns:
      `training_minutes`, `training_seconds`; `megabytes`, what server and clients sent in all
      rounds, if the file has it; `knn`, the monitor's [round, accuracy] pairs; and for each column
      of `COSTS` that the file has, a list of its sums up to the round of each of these pairs. Empty
      if there is no such file.

    Raises:
      ConfigurationError: If the file does not have the format of a run's metrics.
    """
    path = run / "metrics.csv"
    if not path.exists():
        return {}
    rows = checked_files.read_metrics(path)
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    knn = [(int(row["round"]), row["knn_accuracy"]) for row in rows if "knn_accuracy" in row]
    costs = {
        name: [sum(row.get(name, 0) for row in rows[:last]) for last, _ in knn]
        for name in COSTS
        if knn and any(name in row for row in rows)
    }
    sent = [row["bytes"] for row in rows if "bytes" in row]
    return {
        "training_minutes": sum(seconds) / 60,
        "training_seconds": sum(seconds),
        **({"megabytes": sum(sent) / 1e6} if sent else {}),
        "knn": [list(pair) for pair in knn],
        **costs,
    }


def read_file(path: pathlib.Path) -> Records:
    """Reads the records of a file; a ConfigurationError if it does not have the format."""
    partitions: dict[str, Any] = {}
    runs: dict[str, dict[int, Run]] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    identity: Mapping[str, Any] = {}
    for where, line in read_lines(path):
        try:
            if "experiment" in line:
                identity = line
            elif "partition" in line:
                partitions[_plain(line.pop("partition"), where)] = line
            else:
                cell, seed = _plain(line.pop("cell"), where), line.pop("seed", None)
                if not isinstance(seed, int | None):
                    raise ConfigurationError(f"{where}: {seed!r} is no seed")
                if seed is None:
                    settings[cell] = line
                else:
                    runs.setdefault(cell, {})[seed] = _run(where, line, settings[cell])
        except (KeyError, AttributeError) as error:
            raise ConfigurationError(f"{where} is no record of a run: {error!r}") from error
    if not identity:
        raise ConfigurationError(f"{path} does not name its experiment in its first line")
    return Records(identity, runs, partitions)


def _plain(name: Any, where: str) -> str:
    """The name, of which a file is made; a ConfigurationError if it may lead to another folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ConfigurationError(f"{where}: {name!r} is no name of a file or a folder")
    return name


def read_lines(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the objects of a file of JSON lines, each with its place for messages.

    Raises:
      ConfigurationError: If the file cannot be read, or a line is no JSON object.
    """
    where = str(path)
    try:
        # `str.splitlines` would also split at characters such as U+2028, which names may have.
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                where = f"{path}, line {number}"
                yield where, dict(json.loads(text))
    except (ValueError, TypeError, OSError) as error:
        raise ConfigurationError(f"{where} cannot be read ({error})") from error


def _run(where: str, fields: dict[str, Any], settings: Mapping[str, Any]) -> Run:
    """The run of a line whose cell has these settings."""
    results = fields.pop("results", {})
    for name, content in results.items():
        _plain(name, where)
        _check_result(content, where, "remove the line")
    if "failed" in fields:
        return Run(where, results, {}, {"reason": fields["failed"], **settings})
    return Run(where, results, {**fields, **settings})


def to_text(records: Records) -> str:
    """The content of a file with the runs that are over."""
    lines: list[Mapping[str, Any]] = [records.identity]
    lines += [{"partition": name, **part} for name, part in sorted(records.partitions.items())]
    for cell in sorted(records.runs):
        before = None
        for seed, run in sorted(records.runs[cell].items()):
            if not run.is_over:
                continue
            fields = dict(run.summary or run.failure)
            settings = {name: fields.pop(name) for name in _SETTINGS if name in fields}
            if run.failure:
                fields = {"failed": fields["reason"]}
            if settings != before:
                lines.append({"cell": cell, **settings})
            before = settings
            results = {"results": run.results} if run.results else {}
            lines.append({"cell": cell, "seed": seed, **fields, **results})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def merge(old: Records, new: Records, where: str) -> Records:
    """Adds the partitions and finished runs of `new` to `old`, in place of the same ones.

    Raises:
      ConfigurationError: If they are of different reproductions; `old`, at `where`, may be empty.
    """
    if old.identity and old.identity != new.identity:
        raise ConfigurationError(f"{where} holds another reproduction ({name_flags(old.identity)})")
    added = {
        cell: {seed: run for seed, run in runs.items() if run.is_over}
        for cell, runs in new.runs.items()
    }
    runs = {cell: old.runs.get(cell, {}) | added.get(cell, {}) for cell in {*old.runs, *added}}
    return Records(new.identity, runs, {**old.partitions, **new.partitions})


def name_flags(identity: Mapping[str, Any]) -> str:
    """The flags of `launch.reproduce` that name a reproduction, for messages."""
    return ", ".join(f"--{name}={value}" for name, value in identity.items() if value)
