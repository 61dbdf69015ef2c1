"""The files of a run that its page needs."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from launch.outputs import partition_record, run_folder
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import checked_files, records


class RunFiles(NamedTuple):
    """The content of the files of a run."""

    folder: pathlib.Path
    config: Mapping[str, Any]  # Result of `run_folder.read_config`.
    # Entries of `result.json` and `result_*.json`; none if the run has not ended. If nothing
    # evaluates the run, its entry has no accuracy.
    results: list[Mapping[str, Any]]
    metrics: list[dict[str, float]]  # Result of `checked_files.read_metrics`.
    partition: Mapping[str, Any] | None  # Content of `partition.json`; None if the run has none.

    @property
    def flags(self) -> Mapping[str, Any]:
        """The flags of the run and its `script`, by name."""
        return self.config["flags"]

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended; earlier versions wrote no entry for one without labels."""
        return bool(self.results) or (self.folder / "result.json").exists()

    @property
    def rounds_done(self) -> int:
        """Number of rounds that the run has trained."""
        return len(self.metrics)

    @property
    def is_per_case(self) -> bool:
        """Whether accuracies are of cases, not of images."""
        per_case = self.flags.get("per_case")  # Earlier versions wrote none for a case folder.
        return self.flags.get("dataset") == "case_folder" if per_case is None else bool(per_case)

    def first(self, name: str) -> Any:
        """A field of the first result that has it; None if none has."""
        return next((r[name] for r in self.results if r.get(name) is not None), None)

    def column(self, name: str) -> np.ndarray:
        """The numbers of a column of `metrics.csv`, float64; empty if it has no such column."""
        return np.array([row[name] for row in self.metrics if name in row], np.float64)


def of_evaluation(run: pathlib.Path, output: pathlib.Path, flags: Mapping[str, Any]) -> RunFiles:
    """A run with the results that an evaluation with these flags has written to `output`.

    The flags are also those of an encoder that has no run.
    """
    results = records.entries(records.read_results(output))
    if not run_folder.read_config(run):
        return RunFiles(run, {"flags": flags}, results, [], None)
    of_run = read(run)
    config = {**of_run.config, "flags": {**of_run.flags, "seed": flags["seed"]}}
    return of_run._replace(config=config, results=results, partition=None)


def read(folder: pathlib.Path) -> RunFiles:
    """Reads the files of a run."""
    config = run_folder.read_config(folder)
    if not config:
        path = folder / "config.json"
        raise ConfigurationError(f"{folder} holds no run of pretrain or centralized: no {path}")
    metrics_csv, partition = folder / "metrics.csv", folder / "partition.json"
    return RunFiles(
        folder,
        config,
        records.entries(records.read_results(folder)),
        checked_files.read_metrics(metrics_csv) if metrics_csv.exists() else [],
        partition_record.read(partition) if partition.exists() else None,
    )
