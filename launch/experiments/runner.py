"""Runs the cells of an experiment, each in a process of its own, several at once if asked for."""

import concurrent.futures
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from launch.outputs import run_folder
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import measured, report
from tff_ssl.reporting.experiment import Cell, Experiment

_ROOT = pathlib.Path(__file__).parent.parent.parent
# The scripts that run now, to be told when this process is to end.
_running: set[subprocess.Popen] = set()
_lock = threading.Lock()
_ending = threading.Event()


def run(
    experiment: Experiment, cells: Sequence[Cell], folder: pathlib.Path, args: flags.FlagValues
) -> None:
    """Runs what is missing, and writes the report after each run."""
    _check_folder(folder, experiment, args)
    jobs = [(cell, seed) for seed in range(args.seeds) for cell in cells]
    pending = [job for job in jobs if not _is_done(folder, *job, args.retry_failed)]
    for cell, seed in [] if args.report_only else jobs:
        _check_flags(folder / cell.name / f"seed{seed}", cell, args.retry_failed)
    to_do = "" if args.report_only else f"{len(pending)} runs to do, "
    print(
        f"{experiment.title}: {len(cells)} cells x {args.seeds} seeds, {to_do}"
        f"{len(jobs) - len(pending)} done; results go to {folder}/",
        flush=True,
    )
    if args.report_only:
        pending = []
    if pending:
        run_folder.make(folder)
        run_folder.lock(folder)
        _draw_partitions(experiment, folder, args)
        # Not before: data that is not there does not claim the folder.
        run_folder.write_json(folder / "experiment.json", _purpose(experiment, args))
    _run_all(pending, experiment, folder, args)
    markdown, page = _write_report(experiment, folder)
    _print_tables(experiment, folder)
    print(f"\nwritten to {markdown} and {page}")


def _run_all(
    pending: Sequence[tuple[Cell, int]],
    experiment: Experiment,
    folder: pathlib.Path,
    args: flags.FlagValues,
) -> None:
    """Runs them, `args.jobs` at once; writes the report after each."""
    shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    cores = sorted(os.sched_getaffinity(0))
    for job in range(args.jobs):
        shares.put(cores[job :: args.jobs])

    submitted: dict[tuple[str, int], concurrent.futures.Future[str]] = {}
    failed = threading.Event()

    def run_cell(number: int, cell: Cell, seed: int) -> str:
        if cell.needs and (cell.needs, seed) in submitted:
            # It was submitted before, so that it is done or runs in another thread.
            submitted[cell.needs, seed].result()
        if failed.is_set():
            return ""
        _say(f"[{number}/{len(pending)}] {cell.name}, seed {seed}")
        try:
            return f"{cell.name}, seed {seed}: {_run_cell(cell, seed, folder, args)}"
        except BaseException as error:
            failed.set()
            if args.jobs > 1 and not _ending.is_set():
                _say(f"    {error}; no other run is started, those that go on will end first")
            raise

    start = time.monotonic()
    # Affinity is a thread's own, and goes on to the processes that the thread starts.
    with concurrent.futures.ThreadPoolExecutor(
        args.jobs, initializer=lambda: os.sched_setaffinity(0, shares.get())
    ) as pool:
        for k, (cell, seed) in enumerate(pending, start=1):
            submitted[cell.name, seed] = pool.submit(run_cell, k, cell, seed)
        jobs = list(submitted.values())
        try:
            for done, ended in enumerate(concurrent.futures.as_completed(jobs), start=1):
                outcome = ended.result()
                if not outcome:
                    continue
                minutes = (time.monotonic() - start) / 60
                left = minutes / done * (len(pending) - done)
                _say(f"    {outcome}; {minutes:.0f} minutes so far, about {left:.0f} left")
                _write_report(experiment, folder)
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            # Told to end, they save their states. After a failure, other cells' runs end first.
            if isinstance(error, KeyboardInterrupt):
                _interrupt()
                _say("stopped: the same command goes on where it was")
            else:
                pool.shutdown()  # Not `wait`, for which what was cancelled never ends.
                _write_report(experiment, folder)
            raise


def _say(line: str) -> None:
    """Prints it at once with its end: other threads print too."""
    print(f"{line}\n", end="", flush=True)


def _interrupt() -> None:
    _ending.set()
    with _lock:
        for process in _running:
            process.terminate()


def _purpose(experiment: Experiment, args: flags.FlagValues) -> dict[str, Any]:
    """What a folder is for."""
    return {"experiment": experiment.name, "scale": args.scale, "dataset": args.dataset,
            "rounds": args.rounds}  # fmt: skip


def _check_folder(folder: pathlib.Path, experiment: Experiment, args: flags.FlagValues) -> None:
    """Another experiment may not be mixed in.

    Raises:
      ConfigurationError: If the folder is for something else, or is to be reported on and is empty.
    """
    path = folder / "experiment.json"
    if path.exists():
        before = measured.read_json(path)
        if before != _purpose(experiment, args):
            named = ", ".join(f"--{name}={value}" for name, value in before.items() if value)
            raise ConfigurationError(
                f"--output_dir={folder} holds another reproduction ({named}); name another folder"
            )
    elif args.report_only:
        raise ConfigurationError(f"--report_only: {folder} holds no reproduction to report on")
    elif (folder / "config.json").exists():
        raise ConfigurationError(f"--output_dir={folder} holds a run; name another folder")


def _check_flags(run_of: pathlib.Path, cell: Cell, retry_failed: bool) -> None:
    """Runs of other flags than the cell's, of a preset as it was, may not be mixed in.

    Raises:
      ConfigurationError: If the run was done, or diverged, with other flags.
    """
    now = effective_flags(cell.flags)
    for path in (run_of / "done.json", *([] if retry_failed else [run_of / measured.FAILED])):
        then = measured.read_json(path).get("flags", now) if path.exists() else now
        if then != now:
            differ = sorted(
                name for name in then.keys() | now.keys() if then.get(name) != now.get(name)
            )
            changes = (f"{n}: {then.get(n)}, now {now.get(n)}" for n in differ)
            raise ConfigurationError(
                f"{run_of} was run with other flags than {cell.name} has now "
                f"({'; '.join(changes)}): delete it, or name another --output_dir"
            )


def effective_flags(given: Sequence[str]) -> dict[str, str]:
    """The last value of each flag, with those of presets; a hyperparameter is one of its own."""
    values = {}
    for flag in flags.FlagValues().read_flags_from_files(list(given)):
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "hparam":
            name, _, value = value.partition("=")
            name = f"hparam.{name}"
        values[name] = value
    return values


def _is_done(folder: pathlib.Path, cell: Cell, seed: int, retry_failed: bool) -> bool:
    run_of = folder / cell.name / f"seed{seed}"
    if (run_of / measured.FAILED).exists():
        return not retry_failed
    done = measured.read_summary(run_of)
    # An experiment may get further evaluations later.
    return bool(done) and all(list(e) in done.get("evaluations", []) for e in cell.evaluations)


def _run_cell(cell: Cell, seed: int, folder: pathlib.Path, args: flags.FlagValues) -> str:
    """Trains and evaluates; says how it went.

    Raises:
      TrainingError: If a script ends with an error that is not a diverged training.
    """
    output = folder / cell.name / f"seed{seed}"
    output.mkdir(parents=True, exist_ok=True)
    if (output / measured.FAILED).exists():
        shutil.rmtree(output)
        output.mkdir()
    before = {"seconds": 0, "evaluations": [], **measured.read_summary(output)}
    data = [f"--data_dir={args.data_dir}"] if args.data_dir else []
    needed = folder / str(cell.needs) / f"seed{seed}"
    own = [flag.replace("{needed}", str(needed)) for flag in cell.flags]
    train = [cell.script, *own, *data, f"--seed={seed}", f"--output_dir={output}"]
    start = time.monotonic()
    if not (output / "result.json").exists():
        failure = _script([*train, "--resume"], output / "log.txt")
        if failure:
            if "training diverged" not in failure:
                raise TrainingError(f"{cell.name}, seed {seed}: {failure} (see {output}/log.txt)")
            run_folder.write_json(
                output / measured.FAILED, {"reason": failure, "flags": effective_flags(cell.flags)}
            )
            return f"failed: {failure}"
    for evaluation in cell.evaluations:
        if list(evaluation) in before["evaluations"]:
            continue
        flags_of = ["evaluate", f"--run={output}", *data, *evaluation]
        failure = _script(flags_of, output / "log.txt")
        if failure:
            raise TrainingError(f"{cell.name}, seed {seed}: {failure} (see {output}/log.txt)")
    # What a finished run no longer needs; with it, a table of the paper would be some gigabytes.
    for unneeded in ("checkpoints", "client_states"):
        shutil.rmtree(output / unneeded, ignore_errors=True)
    seconds = before["seconds"] + round(time.monotonic() - start)
    noted = {
        **before,
        "seconds": seconds,
        "evaluations": list(cell.evaluations),
        "flags": effective_flags(cell.flags),
        **measured.summarize_training(output),
    }
    run_folder.write_json(output / "done.json", noted)
    return "done"


def _script(arguments: Sequence[str], log: pathlib.Path) -> str | None:
    """Runs `python -m launch.NAME FLAGS` from the project's root; its last line if it fails."""
    name, *rest = arguments
    command = [sys.executable, "-m", f"launch.{name}", *rest]
    with open(log, "a") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        with _lock:
            if _ending.is_set():
                return "interrupted"
            # In a session of its own, so that whatever ends this process reaches it once.
            process = subprocess.Popen(
                command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            _running.add(process)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
        finally:
            with _lock:
                _running.discard(process)
    if code == 0:
        return None
    if code < 0:
        return f"ended by {signal.Signals(-code).name} (out of memory, or killed)"
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")


def _draw_partitions(experiment: Experiment, folder: pathlib.Path, args: flags.FlagValues) -> None:
    """A picture of each partition, with seed 0."""
    data = [f"--data_dir={args.data_dir}"] if args.data_dir else []
    flags_of = {cell.name: cell.flags for cell in experiment.cells}
    for name, cell in experiment.partitions.items():
        output = folder / "partitions" / name
        if (output / "partition.png").exists():
            continue
        run_folder.make(output)
        # What is not about the data is a flag of the training alone.
        given = flags.FlagValues().read_flags_from_files(list(flags_of[cell]))
        names = sorted({flag.removeprefix("--").partition("=")[0] for flag in given})
        ignored = f"--undefok={','.join(names)}"
        command = ["partition_report", *flags_of[cell], *data, ignored, f"--output_dir={output}"]
        failure = _script(command, output / "log.txt")
        if failure:
            raise TrainingError(f"the partition {name}: {failure}")


def _write_report(
    experiment: Experiment, folder: pathlib.Path
) -> tuple[pathlib.Path, pathlib.Path]:
    drawn = {
        f"Partition {name}": folder / "partitions" / name / "partition.png"
        for name in experiment.partitions
    }
    return report.write(
        folder, experiment, {name: path for name, path in drawn.items() if path.exists()}
    )


def _print_tables(experiment: Experiment, folder: pathlib.Path) -> None:
    values = report.read_values(folder, experiment)
    for table in experiment.tables:
        print(f"\n{table.title}")
        measured_figures = report.measured_grid(table, values[table.title])
        grids = [measured_figures, report.published_grid(table)]
        shown = [grid for grid in grids if len(grid) > 1]
        columns = list(zip(*(row for grid in shown for row in grid), strict=True))
        first, *others = [max(map(len, cells)) for cells in columns]
        for name, *cells in (row for grid in shown for row in grid):
            aligned = (f"  {cell:>{width}}" for cell, width in zip(cells, others, strict=True))
            print(f"{name:{first}}{''.join(aligned)}")
    print()
    for title, text, verdict in report.claim_rows(experiment, values):
        print(f"{verdict:14} {text} ({title})")
