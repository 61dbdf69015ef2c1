"""Tries hyperparameters of algorithms, and selects the best ones on training images.

    python -m launch.sweep --algorithms=fedavg,fedprox --seeds=0,1 --rounds=50
    python -m launch.sweep --algorithms=fedprox --hparam=mu=0.01,0.1,1 --hparam=local_epochs=1,5

A trial is one setting of an algorithm, trained by `pretrain` with each seed, in the folder
ALGORITHM/SETTING of --output_dir. It is scored by the kNN accuracy of the encoder on training
images: each image is classified by its nearest neighbours among the others. Test images are not
used for the choice; only the selected setting of each algorithm is shown with its test accuracy.
All flags of `pretrain` hold for all trials, beside the preset of each algorithm.

The same command again continues a sweep that was stopped. In the end, `summary.csv` has a row for
each trial, and `sweep.png` shows the scores.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Sequence
from typing import Literal

from launch.options import app, presets, resuming
from launch.options.run_config import RunConfig
from launch.options.settings import flag
from launch.outputs import commands, output_folder, run_folder, sweep_plot, tables
from launch.runs import scripts, trials
from launch.runs import seeds as seeds_of_run
from launch.runs.trials import Outcome, Trial
from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import checked_files

# Flags of this script alone, or with other values in the trials.
_OWN = {
    "algorithms", "search", "trials", "sweep_seed", "jobs", "hparam", "seeds", "seed", "output_dir",
    "list",
}  # fmt: skip
_IDENTITY = "sweep.json"  # File with the flags that all trials of a folder share.


@dataclasses.dataclass(frozen=True)
class SweepConfig(RunConfig):
    """The trials of a sweep.

    Attributes:
      algorithms: Names of the algorithms; a hyperparameter that some of them lack is tried with the
        others.
      search: grid: all combinations of the values of --hparam; random: --trials of these
        combinations, drawn at random.
      trials: random: number of trials of each algorithm.
      sweep_seed: random: seed of the draw. More --trials keep the first ones.
      jobs: Number of runs at the same time; each has an equal share of the cores.
    """

    algorithms: tuple[str, ...] = ("dcco",)
    search: Literal["grid", "random"] = "grid"
    trials: int = flag(10, 1)
    sweep_seed: int = flag(0, 0, 2**31 - 1)
    jobs: int = flag(1, 1)


def main(config: SweepConfig) -> None:
    if config.output.list:
        from launch.options import choices

        choices.show(config)
        return
    seeds = _check(config)
    chosen, notes = _choose_trials(config)
    folder = output_folder.choose(config.output.output_dir, f"sweep-{config.data.dataset}")
    flags = [f"--flagfile={path}" for path in presets.files(sys.argv[1:])]
    flags += resuming.as_arguments(config, config.given - _OWN)
    _claim(folder, flags)
    every = [(trial, seed) for trial in chosen for seed in seeds]
    pending = [
        (trial, seed)
        for trial, seed in every
        if not trials.is_done(run_folder.of_seed(trial.folder(folder), seed))
    ]
    print(
        f"{len(chosen)} trial{'s' * (len(chosen) != 1)} x {len(seeds)} "
        f"seed{'s' * (len(seeds) != 1)}, {len(pending)} run{'s' * (len(pending) != 1)} to do, "
        f"{len(every) - len(pending)} done; results go to {folder}/",
        *(f"note: {note}" for note in notes),
        sep="\n",
        flush=True,
    )
    again = [] if config.output.output_dir else [f"--output_dir={folder}"]
    jobs = [
        scripts.Job(
            f"{trial.algorithm}, {trial.setting}, seed {seed}",
            functools.partial(trials.run, trial, seed, folder, flags),
        )
        for trial, seed in pending
    ]
    scripts.run_all(
        jobs, config.jobs, lambda: None,
        lambda: commands.module("launch.sweep", *sys.argv[1:], *again),
    )  # fmt: skip
    _report([trials.read(trial, seeds, folder) for trial in chosen], folder)


def _check(config: SweepConfig) -> tuple[int, ...]:
    """The seeds; a `ConfigurationError` if flags do not fit together."""
    scripts.check_jobs(config.jobs)
    for name in ("trials", "sweep_seed"):
        if name in config.given and config.search != "random":
            raise ConfigurationError(f"--{name} is for --search=random: add it, or leave this out")
    if not config.evaluation.eval_every:
        raise ConfigurationError(
            "--eval_every=0: trials are compared by the kNN monitor, which needs 1 or more"
        )
    if not config.algorithms:
        raise ConfigurationError("--algorithms: name one or more, with commas between")
    return seeds_of_run.check(config) if config.output.seeds else (config.seed,)


def _choose_trials(config: SweepConfig) -> tuple[list[Trial], list[str]]:
    """The trials, and notes on hyperparameters that some algorithms lack."""
    from tff_ssl.algorithms import registry

    objective = config.algorithm.objective
    algorithms = {
        name: registry.find(name, objective).hyperparameters for name in config.algorithms
    }
    # Those of a flag file are no values to try; the trials read the file themselves.
    grid = trials.parse_grid(presets.given(sys.argv[1:], "hparam"))
    drawn = config.trials if config.search == "random" else None
    return trials.choose(algorithms, grid, drawn, config.sweep_seed)


def _claim(folder: pathlib.Path, flags: Sequence[str]) -> None:
    """Locks the folder, and records the shared flags; they are the same when it continues."""
    path = folder / _IDENTITY
    if path.exists():
        before = checked_files.read_json(path, {"flags": [str]})["flags"]
        if before != list(flags):
            raise ConfigurationError(
                f"--output_dir={folder} holds a sweep with other flags "
                f"({' '.join(before) or 'none'}): name another folder"
            )
    elif (folder / "config.json").exists() or run_folder.seed_runs(folder):
        raise ConfigurationError(f"--output_dir={folder} holds a run; name another folder")
    run_folder.make(folder)
    run_folder.lock(folder)
    run_folder.write_json(path, {"flags": list(flags)})


def _report(outcomes: Sequence[Outcome], folder: pathlib.Path) -> None:
    """Prints the selected settings; writes `summary.csv` and `sweep.png`."""
    selected = trials.select(outcomes)
    print(f"\n{tables.aligned(trials.selected_rows(outcomes))}\n")
    rows = [trials.summary_row(one, one is selected[one.trial.algorithm]) for one in outcomes]
    whole_files.write(folder / "summary.csv", tables.as_csv(rows))
    sweep_plot.draw(
        trials.scores_by_value(outcomes),
        {name: one.score for name, one in selected.items()},
        folder / "sweep.png",
    )
    best = [str(one.trial.folder(folder)) for one in selected.values()]
    runs = f"{folder}/ALGORITHM/SETTING/seed_N/"
    print(f"written to {folder}/: summary.csv, sweep.png; the runs are in {runs}")
    if sum(len(one.scores) for one in selected.values()) > 1:
        command = commands.module("launch.visualize", f"--compare={','.join(best)}")
        print(f"compare the selected runs with: {command}")


SCRIPT = app.Script("sweep", main, SweepConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
