"""Mean, deviation and paired differences of accuracies over the seeds of runs."""

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

UNTRAINED = "random_encoder"  # The baseline against which the gain is measured.
BySeed = dict[int, float]  # Seed -> accuracy in [0, 1].


class Spread(NamedTuple):
    """The mean of some figures, one for each seed."""

    mean: float  #: Their mean; NaN if there are none.
    #: Their sample standard deviation (of n - 1 degrees of freedom); None below two.
    deviation: float | None
    seeds: int  #: Their number.

    def text(self, scale: float = 1.0, digits: int = 3, sign: str = "") -> str:
        """Mean and deviation, such as `0.512 ± 0.013`; `sign="+"` shows the sign of a gain."""
        mean = f"{scale * self.mean:{sign}.{digits}f}"
        if self.deviation is None:
            return mean
        return f"{mean} ± {scale * self.deviation:.{digits}f}"


class Measured(NamedTuple):
    """What a result measures: results of runs are compared if these are the same."""

    protocol: str  #: Protocol of the result.
    #: Data set of the evaluation, and the folder of your own images, if they are others than those
    #: of the training; else empty.
    dataset: str
    labels: int  #: Number of labels, of each class or in total.
    is_per_class: bool  #: Whether `labels` counts those of each class.
    method: str = ""  #: Method of the probe if it is another than logistic regression; else empty.

    def name(self) -> str:
        """The protocol with another method and data set, such as `transfer (lars) on cifar10`."""
        protocol = self.protocol.replace("_", " ") + (f" ({self.method})" if self.method else "")
        return f"{protocol} on {self.dataset}" if self.dataset else protocol

    def labels_text(self) -> str:
        """The number of labels, such as `5 labels a class`."""
        plural, of_class = "" if self.labels == 1 else "s", " a class" if self.is_per_class else ""
        return f"{self.labels:,} label{plural}{of_class}"


class Figures(NamedTuple):
    """The accuracies of several seeds in one measurement."""

    accuracy: BySeed
    baselines: dict[str, BySeed]  # By the baseline's name.

    def gain(self) -> Spread | None:
        """The accuracy minus that of the untrained encoder of the same seed; None without it."""
        return paired(self.accuracy, self.baselines.get(UNTRAINED, {}))


def spread(values: Iterable[float]) -> Spread:
    """Mean and sample standard deviation of figures."""
    figures = list(values)
    mean = float(np.mean(figures)) if figures else math.nan
    deviation = float(np.std(figures, ddof=1)) if len(figures) > 1 else None
    return Spread(mean, deviation, len(figures))


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Spread | None:
    """The differences `first` - `second` over the seeds that both have; None without any.

    What a seed changes in both, such as the labels that it draws, cancels out in a difference.
    """
    seeds = sorted(first.keys() & second.keys())
    return spread(first[seed] - second[seed] for seed in seeds) if seeds else None


def measured(result: Mapping[str, Any]) -> Measured:
    """What an entry of `result.json` measures."""
    per_class, method = result.get("labels_per_class"), str(result.get("method", ""))
    other = str(result["dataset"]) if "pretrained_on" in result else ""
    if "data_dir" in result:
        other += f" {pathlib.PurePath(str(result['data_dir'])).name}"
    return Measured(
        result["protocol"], other, per_class or result["labels"], bool(per_class),
        "" if method == "logistic" else method,
    )  # fmt: skip


def first(entries: Iterable[Mapping[str, Any]]) -> dict[Measured, Mapping[str, Any]]:
    """The entries of a run that have an accuracy; of several that measure the same, the first."""
    found: dict[Measured, Mapping[str, Any]] = {}
    for entry in entries:
        if "accuracy" in entry:
            found.setdefault(measured(entry), entry)
    return found


def collect(results: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[Measured, Figures]:
    """The accuracies of runs by what they measure, in the order of the results.

    Args:
      results: Entries of the result files of a run, by the run's seed. Those without an accuracy
        are ignored, and of several entries that measure the same the first counts.
    """
    found: dict[Measured, Figures] = {}
    for seed, entries in results.items():
        for one, entry in first(entries).items():
            figures = found.setdefault(one, Figures({}, {}))
            figures.accuracy[seed] = entry["accuracy"]
            for name, scores in entry.get("baselines", {}).items():
                figures.baselines.setdefault(name, {})[seed] = scores["accuracy"]
    return found
