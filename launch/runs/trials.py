"""The trials of a sweep: their hyperparameters, their runs, and the choice between them.

A trial is scored as the choices in `launch.studies` are: by the kNN accuracy of its encoders on
training images, each of which is classified by its neighbours among the others. No test image is
used for a choice.
"""

import itertools
import math
import pathlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from launch.options import hyperparameters
from launch.outputs import run_folder
from launch.runs import scripts
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import measured, over_seeds, records
from tff_ssl.reporting.over_seeds import Figures, Measured, Spread

Grid = Mapping[str, Sequence[str]]  # Hyperparameter -> the values to try.


class Trial(NamedTuple):
    """An algorithm with some of its hyperparameters set, in the order of the command line."""

    algorithm: str
    values: tuple[tuple[str, str], ...]

    @property
    def setting(self) -> str:
        """The hyperparameters, such as `mu=0.1,local_epochs=2`."""
        return ",".join(map("=".join, self.values)) or "default"

    def folder(self, root: pathlib.Path) -> pathlib.Path:
        """The folder of the trial's runs, which are in its `seed_N`."""
        # Without commas, which separate the folders of `visualize --compare`.
        setting = self.setting.replace("/", "_").replace(",", "+")
        names = (self.algorithm.replace(":", "."), setting)
        return root.joinpath(*names)


class Outcome(NamedTuple):
    """What the runs of a trial have measured."""

    trial: Trial
    # kNN accuracy on training images by seed; 0 for a training that diverged.
    scores: Mapping[int, float]
    failed: int  # Number of trainings that diverged.
    # Test accuracies, which are shown for a selected trial alone.
    tested: Mapping[Measured, Figures]

    @property
    def score(self) -> Spread:
        return over_seeds.spread(self.scores.values())


def parse_grid(assignments: Sequence[str]) -> dict[str, list[str]]:
    """The values to try of each hyperparameter, from texts `name=value,value`."""
    grid = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not equals or not all(values) or not name.strip():
            raise ConfigurationError(f"--hparam={assignment}: give name=value or name=value,value")
        grid[name.strip().rstrip("_")] = list(dict.fromkeys(values))
    return grid


def choose(
    algorithms: Mapping[str, type], grid: Grid, trials: int | None, seed: int
) -> tuple[list[Trial], list[str]]:
    """The trials of all algorithms, and a line for each hyperparameter that some do not have.

    Args:
      algorithms: The class of each algorithm's hyperparameters, by its name.
      trials: Number of trials of each algorithm, which are drawn from its grid; None for all.
      seed: Seed of the draws. With more trials, the first ones stay the same.

    Raises:
      ConfigurationError: If no algorithm has a hyperparameter, or a value is not allowed.
    """
    own = {name: set(hyperparameters.names(cls)) for name, cls in algorithms.items()}
    notes = []
    for parameter in grid:
        having = [name for name in algorithms if parameter in own[name]]
        if not having:
            known = sorted(set().union(*own.values()))
            raise ConfigurationError(
                f"--hparam={parameter}: {' and '.join(algorithms)} "
                f"{'has' if len(own) == 1 else 'have'} only {', '.join(known)}"
            )
        lacking = [name for name in algorithms if name not in having]
        if lacking:
            notes.append(f"{parameter} is for {', '.join(having)}; not for {', '.join(lacking)}")
    found = []
    for name, cls in algorithms.items():
        shared = [parameter for parameter in grid if parameter in own[name]]
        settings = list(itertools.product(*(grid[parameter] for parameter in shared)))
        if trials is not None:
            order = np.random.default_rng(seed).permutation(len(settings))[:trials]
            settings = [settings[index] for index in order]
        of_algorithm = [Trial(name, tuple(zip(shared, values, strict=True))) for values in settings]
        for trial in of_algorithm:
            hyperparameters.parse(cls, list(map("=".join, trial.values)))
        found += of_algorithm
    return found, notes


def is_done(run: pathlib.Path) -> bool:
    """Whether the run of a trial has ended or diverged."""
    return (run / records.SUMMARY).exists() or (run / records.FAILED).exists()


def run(trial: Trial, seed: int, root: pathlib.Path, flags: Sequence[str]) -> str:
    """Trains a trial with a seed, from the start or its last checkpoint; `done` or `failed: ...`.

    Args:
      flags: Flags of `pretrain` that all trials share.

    Raises:
      TrainingError: If the script ends with another error than a diverged training.
    """
    output = run_folder.of_seed(trial.folder(root), seed)
    output.mkdir(parents=True, exist_ok=True)
    own = [f"--algorithm={trial.algorithm}", *(f"--hparam={n}={v}" for n, v in trial.values)]
    arguments = [*flags, *own, f"--seed={seed}", f"--output_dir={output}", "--resume"]
    log = output / "log.txt"
    failure = scripts.run_script(["pretrain", *arguments], log, folder=pathlib.Path.cwd())
    if failure and "training diverged" not in failure:
        raise TrainingError(
            f"{trial.algorithm}, {trial.setting}, seed {seed}: {failure} (see {log})"
        )
    for unneeded in ("checkpoints", "client_states"):
        shutil.rmtree(output / unneeded, ignore_errors=True)
    if failure:
        run_folder.write_json(output / records.FAILED, {"reason": failure})
        return f"failed: {failure}"
    kept = {"encoder_round": run_folder.read_flags(output).get("encoder_round")}
    summary = {"flags": kept, **records.summarize_training(output)}
    run_folder.write_json(output / records.SUMMARY, summary)
    return "done"


def read(trial: Trial, seeds: Iterable[int], root: pathlib.Path) -> Outcome:
    """What the runs of a trial have measured.

    Raises:
      ConfigurationError: If a run has no kNN accuracy on training images.
    """
    runs = {seed: records.read_run(run_folder.of_seed(trial.folder(root), seed)) for seed in seeds}
    scores = {
        seed: measured.select({seed: one}, measured.MONITORED).with_failures()
        for seed, one in runs.items()
    }
    if any(map(math.isnan, scores.values())):
        raise ConfigurationError(
            "trials are compared by kNN on training images: that needs training images with "
            "labels, and --eval_every above 0"
        )
    failed = sum(bool(one.failure) for one in runs.values())
    tested = over_seeds.collect({seed: one.entries for seed, one in runs.items()})
    return Outcome(trial, scores, failed, tested)


def select(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """The trial of each algorithm with the largest mean score; of equal ones the first."""
    best: dict[str, Outcome] = {}
    for outcome in outcomes:
        name = outcome.trial.algorithm
        if name not in best or outcome.score.mean > best[name].score.mean:
            best[name] = outcome
    return best


def scores_by_value(outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, Spread]]]:
    """Hyperparameter -> algorithm -> value -> score of the best trial with that value.

    Only hyperparameters with several values are in it; values are in the order of the trials.
    """
    found: dict[str, dict[str, dict[str, Spread]]] = {}
    for outcome in outcomes:
        for parameter, value in outcome.trial.values:
            by_value = found.setdefault(parameter, {}).setdefault(outcome.trial.algorithm, {})
            if value not in by_value or outcome.score.mean > by_value[value].mean:
                by_value[value] = outcome.score
    return {
        parameter: by_algorithm
        for parameter, by_algorithm in found.items()
        if len(set().union(*by_algorithm.values())) > 1
    }


def selected_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The table of the selected trials: settings, scores and test accuracies."""
    selected = select(outcomes)
    tests = list(dict.fromkeys(one for best in selected.values() for one in best.tested))
    titles = [f"test: {one.name()}, {one.labels_text()}" for one in tests]
    rows = [["algorithm", "selected", "of", "kNN on training images", *titles]]
    for name, best in selected.items():
        count = sum(outcome.trial.algorithm == name for outcome in outcomes)
        accuracies = [best.tested.get(one, Figures({}, {})).accuracy.values() for one in tests]
        cells = [over_seeds.spread(values).text() if values else "-" for values in accuracies]
        failed = f" ({best.failed} failed)" if best.failed else ""
        trials = f"{count} trial{'' if count == 1 else 's'}"
        rows.append([name, best.trial.setting, trials, f"{best.score.text()}{failed}", *cells])
    return rows


def summary_row(outcome: Outcome, is_selected: bool) -> dict[str, Any]:
    """A row of `summary.csv`; only a selected trial has test accuracies."""
    score = outcome.score
    row: dict[str, Any] = {
        "algorithm": outcome.trial.algorithm,
        "setting": outcome.trial.setting,
        "seeds": score.seeds,
        "failed": outcome.failed,
        "validation": score.mean,
        "validation_std": score.deviation,
        "selected": "yes" if is_selected else None,
        **{f"hparam.{name}": value for name, value in outcome.trial.values},
    }
    for one, figures in outcome.tested.items() if is_selected else ():
        unit = "per_class" if one.is_per_class else "labels"
        name = "_".join(filter(None, ("test", one.protocol, one.dataset, str(one.labels), unit)))
        tested, gain = over_seeds.spread(figures.accuracy.values()), figures.gain()
        row |= {name: tested.mean, f"{name}_std": tested.deviation}
        if gain:
            row |= {f"{name}_gain": gain.mean, f"{name}_gain_std": gain.deviation}
    return row
