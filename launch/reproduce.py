"""Reproduces an experiment of a paper: all trainings and evaluations, and its tables beside the
published ones.

    python -m launch.reproduce --experiment=NAME --data_dir=...
    python -m launch.reproduce --output_dir=FOLDER [--report_only]
    python -m launch.reproduce --experiment=NAME --scale=paper --estimate

A reproduction that was stopped continues when it is started again with the same --output_dir, which
knows its experiment, scale and data set. The report is rewritten after each run, so that it can be
read before the end.

With --estimate nothing is reproduced: each cell is trained for two rounds on few random images in
place of its data, which may be missing, and the memory and the hours of its runs are estimated.
"""

import fnmatch
import os
import pathlib
from collections.abc import Sequence

from absl import flags

import launch.options.flags
from launch.options import app
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting.experiment import Cell, Experiment

flags.DEFINE_string("experiment", None, "Name of the experiment; --list shows all.")
flags.DEFINE_enum(
    "scale",
    "cpu",
    ["cpu", "paper"],
    "cpu: a small model and few rounds; paper: the setting of the paper.",
)
flags.DEFINE_string(
    "output_dir",
    None,
    "Folder for the runs and the report. Default: results/EXPERIMENT-SCALE[-DATASET].",
)
flags.DEFINE_string("data_dir", None, "Folder of prepared TFDS sets, or of a case_folder's images.")
flags.DEFINE_string("dataset", None, "TFDS set to use instead of the experiment's own data set.")
flags.DEFINE_integer("seeds", 3, "Number of seeds of every cell: 0, 1, and so on.", lower_bound=1)
flags.DEFINE_integer(
    "jobs",
    1,
    "Number of runs at the same time; each has an equal share of the cores.",
    lower_bound=1,
)
flags.DEFINE_list(
    "only",
    [],
    "Names of the cells to run, and with them the cells that they need; * stands for any text, ? "
    "for any character.",
)
flags.DEFINE_integer(
    "rounds", None, "Number of rounds of each run, instead of the preset's.", lower_bound=1
)
flags.DEFINE_boolean(
    "report_only", False, "Run nothing, and write the report of the runs that are finished."
)
flags.DEFINE_boolean(
    "estimate",
    False,
    "Train two rounds of each cell on random images, and write what its runs would take.",
)
flags.DEFINE_integer(
    "estimate_images",
    None,
    "With --estimate: largest number of images of a client. Give the size of a batch to see the "
    "memory of whole batches. Default: 16; of images of 224 pixels or with a ResNet-50, 8.",
    lower_bound=2,
)
flags.DEFINE_boolean("retry_failed", False, "Repeat the runs that failed before.")
flags.DEFINE_boolean("list", False, "Print the experiments, and end.")
flags.adopt_module_key_flags(launch.options.flags)


def main() -> None:
    from launch.studies import catalog
    from launch.studies.engine import runner

    args = flags.FLAGS
    if args.list:
        for name, (_, summary) in catalog.EXPERIMENTS.items():
            print(f"experiment {name}  {summary}")
        return
    _take_over(args)
    _check(args)
    experiment = _build_experiment(args)
    cells = _choose_cells(experiment, args.only)
    # Experiments share what is measured for estimates.
    first = "estimates" if args.estimate else experiment.name
    name = "-".join(filter(None, (first, args.scale, args.dataset)))
    folder = pathlib.Path(args.output_dir or pathlib.Path("results") / name)
    if args.estimate:
        from launch.studies.engine import estimates

        estimates.run(experiment, cells, folder, args.estimate_images)
    else:
        runner.run(experiment, cells, folder, args)


def _take_over(args: flags.FlagValues) -> None:
    """Sets the flags that are not given to those of the reproduction in `--output_dir`."""
    from launch.outputs import run_folder
    from tff_ssl.reporting import measured

    path = pathlib.Path(args.output_dir or "") / "experiment.json"
    if not args.output_dir or not path.exists():
        return
    before = measured.read_json(path)
    if args.experiment in (None, before["experiment"]):
        run_folder.take_over(before, before.keys(), args)
        runs = (run_folder.read_flags(file.parent) for file in path.parent.glob("*/*/config.json"))
        run_folder.take_over(next(filter(None, runs), {}), ["data_dir"], args)


def _check(args: flags.FlagValues) -> None:
    """Checks `--experiment`, `--jobs` and `--estimate`."""
    from launch.studies import catalog

    if args.experiment is None:
        raise ConfigurationError(
            f"--experiment is missing: name one of {', '.join(catalog.EXPERIMENTS)}; or by "
            "--output_dir the folder of a reproduction, which knows its experiment"
        )
    if args.experiment not in catalog.EXPERIMENTS:
        raise ConfigurationError(
            f"--experiment must be one of {', '.join(catalog.EXPERIMENTS)}; got {args.experiment!r}"
        )
    cores = len(os.sched_getaffinity(0))
    if args.jobs > cores:
        raise ConfigurationError(f"--jobs={args.jobs} is more than this process's {cores} cores")
    if args.estimate and args.jobs > 1:
        raise ConfigurationError("--estimate measures one cell at a time: leave --jobs out")
    if args.estimate_images and not args.estimate:
        raise ConfigurationError("--estimate_images is for --estimate: add it, or leave this out")


def _build_experiment(args: flags.FlagValues) -> Experiment:
    """Builds the experiment; resets `--dataset` if it names the experiment's own data set.

    Raises:
      ConfigurationError: If the experiment does not support another data set.
    """
    from launch.studies import catalog
    from launch.studies.engine import runner

    build, _ = catalog.EXPERIMENTS[args.experiment]
    experiment = build(args.scale, args.dataset, args.rounds)
    if not args.dataset:
        return experiment
    flag = f"--dataset={args.dataset}"
    if not any(flag in cell.flags for cell in experiment.cells):
        raise ConfigurationError(f"{flag}: {args.experiment} is for its own data only")
    default = build(args.scale, None, args.rounds)
    settings, default_settings = (
        [runner.effective_flags(cell.flags) for cell in cells]
        for cells in (experiment.cells, default.cells)
    )
    if settings == default_settings:
        # The reproduction has the same name and folder as without the flag.
        args.dataset = None
        return default
    return experiment


def _choose_cells(experiment: Experiment, patterns: Sequence[str]) -> list[Cell]:
    """The cells of `--only`, and the cells that they need; all cells if there are no patterns.

    Raises:
      ConfigurationError: If a pattern matches no cell.
    """
    known = [cell.name for cell in experiment.cells]
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise ConfigurationError(f"--only={pattern} names no cell of {', '.join(known)}")
    names = {name for pattern in patterns or ["*"] for name in fnmatch.filter(known, pattern)}
    names |= {cell.needs for cell in experiment.cells if cell.needs and cell.name in names}
    return [cell for cell in experiment.cells if cell.name in names]


if __name__ == "__main__":
    app.run(main)
