"""Reproduces an experiment of a paper, with its tables beside the published ones.

    python -m launch.reproduce --experiment=NAME --data_dir=...
    python -m launch.reproduce --output_dir=FOLDER [--report_only]
    python -m launch.reproduce --import_from=measured/NAME-cpu.jsonl --report_only
    python -m launch.reproduce --output_dir=FOLDER --report_only --export_to=measured/NAME-cpu.jsonl
    python -m launch.reproduce --experiment=NAME --scale=paper --estimate
    python -m launch.reproduce --scale=gpu --minutes=8 --data_dir=...

A stopped reproduction continues when it is started again with the same --output_dir, which records
its experiment, scale and data set. The report is rewritten after each run.

--scale=gpu is for one GPU; without --experiment, all experiments that have it run one after
another. With --minutes, the work ends after that time, and the same command continues it.

With --estimate nothing is reproduced: each cell is trained for two rounds on a few random images
instead of its data, which may be missing, to estimate the memory and the hours of its runs.
"""

import dataclasses
import fnmatch
import pathlib
from collections.abc import Sequence
from typing import Literal

from launch.options import app, resuming
from launch.options.settings import Settings, flag
from launch.outputs import commands, run_folder
from launch.runs import scripts
from launch.studies.engine import exchange, runner
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import checked_files, records
from tff_ssl.reporting.experiment import Cell, Experiment

# Flags that identify a reproduction; its files, which may be a stranger's, choose no others.
_OF_REPRODUCTION = ("experiment", "scale", "dataset", "rounds", "algorithm")
# Flags that belong to a single experiment.
_OF_ONE = (
    "output_dir", "dataset", "algorithm", "only", "import_from", "export_to", "report_only",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ReproduceConfig(Settings):
    """The runs of a reproduction.

    Attributes:
      experiment: Name of the experiment; --list shows all.
      scale: cpu: a small model and few rounds; paper: the setting of the paper; gpu: the network,
        data and clients of the paper, in fewer cells or rounds, for the hours of one GPU.
      output_dir: Folder for the runs and the report. Default: results/EXPERIMENT-SCALE[-DATASET].
      data_dir: Folder of prepared TFDS sets, or of a case_folder's images.
      dataset: TFDS set to use instead of the experiment's own data set.
      algorithm: Run the cells of this algorithm only. package.module:ENTRY is an algorithm of your
        own, which is added to digits_defaults.
      seeds: Number of seeds of every cell: 0, 1, and so on. Default: 3; with --scale=gpu, 1.
      jobs: Number of runs at the same time; each has an equal share of the cores.
      only: Names of the cells to run, together with the cells they need; * stands for any text, ?
        for any character.
      rounds: Number of rounds of each run, instead of the preset's.
      minutes: Time after which runs save their last complete rounds and end, in a minute or so; the
        command that continues them is printed.
      report_only: Run nothing, and write the report of the finished runs.
      estimate: Train two rounds of each cell on random images, and write what its runs would take.
      estimate_images: With --estimate: largest number of images of a client. Give the size of a
        batch to see the memory of whole batches. Default: 16; of images of 224 pixels or with a
        ResNet-50, 8; on a GPU, 256.
      import_from: File of measured/ whose runs are copied to the output folder and not repeated.
      export_to: File such as measured/EXPERIMENT-SCALE.jsonl, to which finished runs are added in
        the end. Runs of the same cell and seed are replaced.
      retry_failed: Repeat the runs that failed before.
      list: Print the experiments, and exit.
    """

    experiment: str | None = None
    scale: Literal["cpu", "gpu", "paper"] = "cpu"
    output_dir: str | None = None
    data_dir: str | None = None
    dataset: str | None = None
    algorithm: str | None = None
    seeds: int | None = flag(None, 1)
    jobs: int = flag(1, 1)
    only: tuple[str, ...] = ()
    rounds: int | None = flag(None, 1)
    minutes: float | None = flag(None, 0.0, 100_000.0)
    report_only: bool = False
    estimate: bool = False
    estimate_images: int | None = flag(None, 2)
    import_from: str | None = None
    export_to: str | None = None
    retry_failed: bool = False
    list: bool = False


def main(args: ReproduceConfig) -> None:
    from launch.studies import catalog

    if args.list:
        for name, (_, summary) in catalog.EXPERIMENTS.items():
            print(f"experiment {name}  {summary}")
        return
    args = _take_over(args)
    args = dataclasses.replace(args, seeds=args.seeds or (1 if args.scale == "gpu" else 3))
    _check(args)
    with scripts.time_limit(args.minutes):
        if args.experiment:
            _reproduce(args)
        else:
            _reproduce_all(args)


def _reproduce_all(args: ReproduceConfig) -> None:
    """Reproduces or estimates the experiments that have a scale for a GPU, in their order."""
    from launch.studies import catalog
    from launch.studies.engine import estimates

    experiments, failed, found = [], "", 0
    for name in catalog.OF_GPU:
        one = dataclasses.replace(args, experiment=name)
        experiments.append(_build_experiment(one)[1])
        missing = runner.missing_data(experiments[-1].cells, args.data_dir)
        if missing and not args.estimate:
            print(f"{name}: left out; {missing}", flush=True)
            continue
        found += 1
        if not scripts.is_ending():
            try:
                _reproduce(one)
            except TrainingError as error:
                if not args.estimate:
                    raise
                failed = f"{name}: {error}"
                print(failed, flush=True)
    if not found:
        raise ConfigurationError("no experiment of --scale=gpu has its data; see the lines above")
    if args.estimate:
        folder = _folder(args, "estimates")
        print(f"\n{estimates.summary(experiments, folder, args.estimate_images)}")
    if failed:
        raise TrainingError(failed)


def _reproduce(args: ReproduceConfig) -> None:
    """Reproduces or estimates one experiment."""
    from tff_ssl.algorithms import registry

    if args.algorithm:
        registry.adopt(args.algorithm)
    args, experiment = _build_experiment(args)
    cells = _choose_cells(experiment, args.only, args.algorithm)
    # Experiments share what is measured for estimates.
    folder = _folder(args, "estimates" if args.estimate else experiment.name)
    if args.estimate:
        from launch.studies.engine import estimates

        if missing := runner.missing_data(cells, args.data_dir):
            print(f"note: {missing}; an estimate needs no data, and a run does")
        estimates.run(experiment, cells, folder, args.estimate_images)
        return
    if args.export_to:  # Fails now, and not after all runs.
        exchange.read_target(pathlib.Path(args.export_to), runner.identity(experiment, args))
    if args.import_from:
        exchange.import_runs(pathlib.Path(args.import_from), folder)
    try:
        runner.run(experiment, cells, folder, args)
    except TrainingError as error:
        if not scripts.is_ending():
            raise
        command = runner.command_to_continue(folder, args)
        print(f"{error}\nstopped after {args.minutes:g} minutes; {commands.CONTINUE}{command}")
    # There is no such file if the time ended before the first run.
    if args.export_to and (folder / records.IDENTITY).exists():
        exchange.export_runs(folder, pathlib.Path(args.export_to))


def _folder(args: ReproduceConfig, first: str) -> pathlib.Path:
    """The folder for the runs and the report, whose name starts with `first` by default."""
    own = args.algorithm or ""
    further = own.replace(":", ".") if ":" in own else None
    name = "-".join(filter(None, (first, args.scale, args.dataset, further)))
    if args.import_from:
        name = pathlib.Path(args.import_from).stem
    return pathlib.Path(args.output_dir or pathlib.Path("results") / name)


def _take_over(args: ReproduceConfig) -> ReproduceConfig:
    """Takes over flags that are not given from `--output_dir`, or from `--import_from`."""
    folder = pathlib.Path(args.output_dir) if args.output_dir else None
    if folder and (folder / records.IDENTITY).exists():
        before = checked_files.read_json(folder / records.IDENTITY, {"experiment": str})
    elif args.import_from:
        before = records.read_file(pathlib.Path(args.import_from)).identity
        if args.experiment not in (None, before.get("experiment")):
            raise ConfigurationError(
                f"--import_from={args.import_from} has runs of {before.get('experiment')}, and not "
                f"of --experiment={args.experiment}"
            )
    else:
        return args
    if args.experiment in (None, before["experiment"]):
        args = resuming.take_over(args, before, _OF_REPRODUCTION)
        configs = sorted(folder.glob("*/*/config.json")) if folder else []
        for run in (path.parent for path in configs):
            if flags := run_folder.read_flags(run):
                args = resuming.take_over(args, flags, ["data_dir"], run)
                break
    return args


def _check(args: ReproduceConfig) -> None:
    from launch.studies import catalog

    of_gpu = ", ".join(catalog.OF_GPU)
    given = [f"--{name}" for name in _OF_ONE if getattr(args, name)]
    if args.experiment is None and args.scale == "gpu" and given:
        raise ConfigurationError(
            f"{', '.join(given)}: for one experiment; name it by --experiment, one of {of_gpu}"
        )
    if args.experiment is None and args.scale != "gpu":
        raise ConfigurationError(
            f"--experiment is missing: name one of {', '.join(catalog.EXPERIMENTS)}, or an earlier "
            "reproduction by --output_dir or --import_from"
        )
    if args.experiment and args.experiment not in catalog.EXPERIMENTS:
        raise ConfigurationError(
            f"--experiment must be one of {', '.join(catalog.EXPERIMENTS)}; got {args.experiment!r}"
        )
    if args.experiment and args.scale == "gpu" and args.experiment not in catalog.OF_GPU:
        raise ConfigurationError(
            f"--experiment={args.experiment} has no --scale=gpu; those that have it: {of_gpu}"
        )
    scripts.check_jobs(args.jobs)
    if args.estimate and args.jobs > 1:
        raise ConfigurationError("--estimate measures one cell at a time: leave --jobs out")
    if args.estimate and (args.import_from or args.export_to):
        raise ConfigurationError("--estimate has no runs: leave out --import_from and --export_to")
    if args.estimate_images and not args.estimate:
        raise ConfigurationError("--estimate_images is for --estimate: add it, or leave this out")


def _build_experiment(args: ReproduceConfig) -> tuple[ReproduceConfig, Experiment]:
    """Builds the experiment; drops `--dataset` if it names the experiment's own data set."""
    from launch.studies import catalog

    assert args.experiment
    build, _ = catalog.EXPERIMENTS[args.experiment]
    experiment = build(args.scale, args.dataset, args.rounds)
    if not args.dataset:
        return args, experiment
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
        return dataclasses.replace(args, dataset=None), default
    return args, experiment


def _choose_cells(
    experiment: Experiment, patterns: Sequence[str], algorithm: str | None
) -> list[Cell]:
    """The cells of `--only` and `--algorithm`, by default all, and the cells that they need."""
    known = [
        cell.name
        for cell in experiment.cells
        if algorithm in (None, runner.effective_flags(cell.flags).get("algorithm", "dcco"))
    ]
    if not known:
        raise ConfigurationError(
            f"--algorithm={algorithm}: {experiment.name} has no cell of it; an algorithm of your "
            "own is for --experiment=digits_defaults"
        )
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise ConfigurationError(f"--only={pattern} names no cell of {', '.join(known)}")
    names = {name for pattern in patterns or ["*"] for name in fnmatch.filter(known, pattern)}
    names |= {cell.needs for cell in experiment.cells if cell.needs and cell.name in names}
    return [cell for cell in experiment.cells if cell.name in names]


SCRIPT = app.Script("reproduce", main, ReproduceConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
