"""Reruns an experiment of a paper: all its trainings and evaluations, then its tables beside the
published ones.

A stopped reproduction goes on where it was when it is started again with the same --output_dir; the
report is written anew after each run, so that it can be looked at on the way.
"""

import fnmatch
import os
import pathlib

from absl import flags

import launch.options.flags
from launch.options import app

flags.DEFINE_string("experiment", None, "The experiment; --list shows them.")
flags.DEFINE_enum(
    "scale", "cpu", ["cpu", "paper"], "A small model and few rounds, or the paper's setting."
)
flags.DEFINE_string(
    "output_dir", None, "Folder for runs and report. Default: results/EXPERIMENT-SCALE[-DATASET]."
)
flags.DEFINE_string("data_dir", None, "Folder of prepared TFDS sets, or of a case_folder's images.")
flags.DEFINE_string("dataset", None, "Another TFDS set than the experiment's own.")
flags.DEFINE_integer("seeds", 3, "Seeds 0, 1, ... of every run.", lower_bound=1)
flags.DEFINE_integer(
    "jobs", 1, "Runs at the same time, each on its share of the cores.", lower_bound=1
)
flags.DEFINE_list("only", [], "Run only the cells of these names; * and ? stand for any text.")
flags.DEFINE_integer("rounds", None, "Rounds of each run instead of the preset's.", lower_bound=1)
flags.DEFINE_boolean("report_only", False, "Run nothing; write the report of what there is.")
flags.DEFINE_boolean("retry_failed", False, "Run anew what failed before.")
flags.DEFINE_boolean("list", False, "Print the experiments, and end.")
flags.adopt_module_key_flags(launch.options.flags)


def main() -> None:
    from launch.experiments import catalog, runner
    from tff_ssl.errors import ConfigurationError

    args = flags.FLAGS
    if args.list:
        for name, (_, summary) in catalog.EXPERIMENTS.items():
            print(f"experiment {name}  {summary}")
        return
    if args.experiment not in catalog.EXPERIMENTS:
        raise ConfigurationError(
            f"--experiment must be one of {', '.join(catalog.EXPERIMENTS)}; got {args.experiment!r}"
        )
    cores = len(os.sched_getaffinity(0))
    if args.jobs > cores:
        raise ConfigurationError(f"--jobs={args.jobs} is more than this process's {cores} cores")
    build, _ = catalog.EXPERIMENTS[args.experiment]
    experiment = build(args.scale, args.dataset, args.rounds)
    if args.dataset:
        given = f"--dataset={args.dataset}"
        if not any(given in cell.flags for cell in experiment.cells):
            raise ConfigurationError(f"{given}: {args.experiment} is for its own data only")
        named, own = (
            [runner.effective_flags(cell.flags) for cell in one.cells]
            for one in (experiment, build(args.scale, None, args.rounds))
        )
        if named == own:
            args.dataset = None  # Written out, it is the same reproduction.
    known = [cell.name for cell in experiment.cells]
    for pattern in args.only:
        if not fnmatch.filter(known, pattern):
            raise ConfigurationError(f"--only={pattern} names no cell of {', '.join(known)}")
    names = {name for pattern in args.only or ["*"] for name in fnmatch.filter(known, pattern)}
    names |= {cell.needs for cell in experiment.cells if cell.needs and cell.name in names}
    cells = [cell for cell in experiment.cells if cell.name in names]
    name = "-".join(filter(None, (experiment.name, args.scale, args.dataset)))
    folder = pathlib.Path(args.output_dir or pathlib.Path("results") / name)
    runner.run(experiment, cells, folder, args)


if __name__ == "__main__":
    app.run(main)
