"""Runs the cells of an experiment, each in a process of its own, and several at once on demand."""

import dataclasses
import functools
import pathlib
import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets import catalog as data_sets
from datasets import partition
from launch.options import presets, resuming
from launch.outputs import commands, run_folder, tables
from launch.runs import scripts
from launch.runs.scripts import run_script
from tff_ssl.errors import ConfigurationError, TrainingError
from tff_ssl.reporting import checked_files, records, report
from tff_ssl.reporting.experiment import Cell, Experiment
from tff_ssl.reporting.records import Records

# Flags that change how precisely a run's figures are measured, and not what they measure: runs with
# other values count as done.
_PRECISION_FLAGS = ("label_draws", "also_logistic")
_STOPPED = "stopped.json"  # In the folder of a run: seconds of calls that did not finish it.
# Held while a report reads the folders of the runs, and while the folder of one is deleted.
_run_folders = threading.Lock()


def run(experiment: Experiment, cells: Sequence[Cell], folder: pathlib.Path, args: Any) -> None:
    """Runs those of the cells that are not done, and writes the report after each run.

    `args` are the flags of `launch.reproduce`.

    Raises:
      ConfigurationError: If the folder holds something else, or runs with other flags.
      TrainingError: If a script fails, other than by a diverged training.
    """
    _check_folder(folder, experiment, args)
    jobs = [(cell, seed) for seed in range(args.seeds) for cell in cells]
    pending = [job for job in jobs if not _is_done(folder, *job, args.retry_failed)]
    # An imported run has results alone, and others may need its encoder.
    needed = {(cell.needs, seed) for cell, seed in pending if cell.needs}
    pending = [
        (cell, seed) for cell, seed in jobs
        if (cell, seed) in pending
        or ((cell.name, seed) in needed and _lacks_encoder(folder / cell.name / f"seed{seed}"))
    ]  # fmt: skip
    done, to_do = len(jobs) - len(pending), f"{len(pending)} runs to do, "
    if args.report_only:
        jobs, pending, to_do = [], [], ""
    for cell, seed in jobs:
        _check_flags(folder / cell.name / f"seed{seed}", cell, args.retry_failed)
    print(
        f"{experiment.title}: {len(cells)} cells x {args.seeds} seeds, {to_do}{done} done; results "
        f"go to {folder}/",
        flush=True,
    )
    if pending:
        if missing := missing_data((cell for cell, _ in pending), args.data_dir):
            raise ConfigurationError(f"{experiment.name}: {missing}")
        run_folder.make(folder)
        run_folder.lock(folder)
        _draw_partitions(experiment, folder, args)
        # The folder is claimed only now, because missing data ends the drawing of partitions.
        run_folder.write_json(folder / records.IDENTITY, identity(experiment, args))
        to_run = [
            scripts.Job(
                f"{cell.name}, seed {seed}",
                functools.partial(_run_cell, cell, seed, folder, args),
                f"{cell.needs}, seed {seed}" if cell.needs else None,
            )
            for cell, seed in pending
        ]
        scripts.run_all(
            to_run, args.jobs, lambda: _write_report(experiment, folder),
            lambda: command_to_continue(folder, args),
        )  # fmt: skip
        _draw_partitions(experiment, folder, args)  # Those that needed a run.
    markdown, page, found = _write_report(experiment, folder)
    _print_tables(experiment, found)
    print(f"\nwritten to {markdown} and {page}")


def missing_data(cells: Iterable[Cell], data_dir: str | None) -> str:
    """Names the data sets of cells and their evaluations that are not prepared; "" if all are."""
    names = {
        effective_flags(flags).get("dataset", "digits")
        for cell in cells
        for flags in (cell.flags, *cell.evaluations)
    }
    missing = [name for name in sorted(names) if not data_sets.is_there(name, data_dir)]
    if not missing:
        return ""
    place = (
        f"--data_dir={data_dir}" if data_dir else "TFDS's own folder; name another by --data_dir"
    )
    return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not prepared in {place}"


def command_to_continue(folder: pathlib.Path, args: Any) -> str:
    """The command that continues a reproduction, whose folder knows its experiment and its data.

    Before the first run has started, it knows neither. Several experiments have several folders.
    """
    if args.scale == "gpu" and not args.given & {"experiment", "output_dir", "import_from"}:
        return commands.module("launch.reproduce", *resuming.as_arguments(args, args.given))
    known = {"experiment", "scale", "dataset", "rounds", "data_dir", "output_dir"}
    if not any(folder.glob("*/*/config.json")):
        known = {"output_dir"}
    own = resuming.as_arguments(args, args.given - known - identity_of_algorithm(args).keys())
    return commands.module("launch.reproduce", f"--output_dir={folder}", *own)


def identity(experiment: Experiment, args: Any) -> dict[str, Any]:
    """The content of `experiment.json`, which identifies a reproduction."""
    return {"experiment": experiment.name, "scale": args.scale, "dataset": args.dataset,
            "rounds": args.rounds, **identity_of_algorithm(args)}  # fmt: skip


def identity_of_algorithm(args: Any) -> dict[str, str]:
    """`--algorithm` if it adds one from outside to the experiment; others only choose cells."""
    is_outside = args.algorithm and ":" in args.algorithm
    return {"algorithm": args.algorithm} if is_outside else {}


def _check_folder(folder: pathlib.Path, experiment: Experiment, args: Any) -> None:
    """Raises `ConfigurationError` if a folder holds something else, or nothing to report on."""
    path = folder / records.IDENTITY
    if path.exists():
        before = checked_files.read_json(path, {str: object})
        if before != identity(experiment, args):
            raise ConfigurationError(
                f"--output_dir={folder} holds another reproduction ({records.name_flags(before)}); "
                "name another folder"
            )
    elif args.report_only:
        raise ConfigurationError(f"--report_only: {folder} holds no reproduction to report on")
    elif (folder / "config.json").exists():
        raise ConfigurationError(f"--output_dir={folder} holds a run; name another folder")


def _check_flags(run: pathlib.Path, cell: Cell, retry_failed: bool) -> None:
    """Raises `ConfigurationError` if a run ended with other flags than its cell has now."""
    now = _compared_flags(effective_flags(cell.flags))
    ends = (records.SUMMARY,) if retry_failed else (records.SUMMARY, records.FAILED)
    for path in (run / end for end in ends if (run / end).exists()):
        then = _compared_flags(checked_files.read_json(path, {str: object}).get("flags", now))
        if then != now:
            raise ConfigurationError(
                f"{run} was run with other flags than {cell.name} has now "
                f"({_changes(then, now)}): delete it, or name another --output_dir"
            )


def _changes(then: dict[str, str], now: dict[str, str]) -> str:
    """The flags that differ, such as `rounds: 100, now 200`; "" if none does."""
    differ = sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))
    return "; ".join(f"{name}: {then.get(name)}, now {now.get(name)}" for name in differ)


def _notes_on_changed_flags(experiment: Experiment, found: Records) -> list[str]:
    """Notes for a report on runs of other flags or evaluations than their cells have now."""
    cells: dict[str, list[str]] = {}
    for cell in experiment.cells:
        now = _compared_flags(effective_flags(cell.flags))
        changed = {
            _changes(_compared_flags(end.get("flags", now)), now)
            for run in found.of_cell(cell.name)
            for end in (run.summary, run.failure)
        }
        for changes in sorted(changed - {""}):
            cells.setdefault(changes, []).append(cell.name)
    evaluated = [
        cell.name
        for cell in experiment.cells
        if any(
            run.summary and not all(_is_evaluated(e, run.summary) for e in cell.evaluations)
            for run in found.of_cell(cell.name)
        )
    ]
    notes = [
        f"Measured with other flags than the experiment has now ({changes}): {', '.join(names)}."
        for changes, names in cells.items()
    ]
    if evaluated:
        notes.append(f"Without an evaluation that the experiment has now: {', '.join(evaluated)}.")
    return notes


def _compared_flags(values: Mapping[str, str]) -> dict[str, str]:
    """The flags that decide what is measured; the partition reads those of others not."""
    ignored = set(_PRECISION_FLAGS)
    if name := values.get("partition"):
        of_clusters = values.get("cluster_partition", partition.CLUSTER_PARTITIONS[0])
        ignored |= partition.unread_flags(name, of_clusters)
    return {name: value for name, value in values.items() if name not in ignored}


def _is_evaluated(evaluation: Sequence[str], done: Mapping[str, Any]) -> bool:
    """Whether a summary has an evaluation with these flags, apart from `_PRECISION_FLAGS`."""
    compared, *others = (
        _compared_flags(effective_flags(given))
        for given in (evaluation, *done.get("evaluations", []))
    )
    return compared in others


def effective_flags(given: Sequence[str]) -> dict[str, str]:
    """Flag -> last value, also of presets; a hyperparameter NAME is a flag `hparam.NAME`."""
    values = {}
    for flag in presets.expand(given):
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "hparam":
            name, _, value = value.partition("=")
            name = f"hparam.{name}"
        values[name] = value
    return values


def _is_done(folder: pathlib.Path, cell: Cell, seed: int, retry_failed: bool) -> bool:
    run = folder / cell.name / f"seed{seed}"
    if (run / records.FAILED).exists():
        return not retry_failed
    done = records.read_summary(run)
    # The experiment may have more evaluations than when the run ended.
    return bool(done) and all(_is_evaluated(e, done) for e in cell.evaluations)


def _lacks_encoder(run: pathlib.Path) -> bool:
    return not (run / "encoder").exists() and not (run / records.FAILED).exists()


def _run_cell(cell: Cell, seed: int, folder: pathlib.Path, args: Any) -> str:
    """Trains and evaluates a cell as far as that is not done; returns `done` or `failed: ...`.

    If it is stopped, the seconds are kept for the call that continues it.

    Raises:
      TrainingError: If a script ends with an error that is not a diverged training.
    """
    output, start = folder / cell.name / f"seed{seed}", time.monotonic()
    try:
        return _complete(cell, seed, folder, args)
    except BaseException:
        if output.is_dir():
            run_folder.write_json(output / _STOPPED, {"seconds": _seconds(output, start)})
        raise


def _seconds(output: pathlib.Path, start: float) -> int:
    """Seconds since the start, and those of calls that were stopped before."""
    path = output / _STOPPED
    before = checked_files.read_json(path, {"seconds": int})["seconds"] if path.exists() else 0
    return before + round(time.monotonic() - start)


def _complete(cell: Cell, seed: int, folder: pathlib.Path, args: Any) -> str:
    """The work of `_run_cell`."""
    output, start = folder / cell.name / f"seed{seed}", time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    if (output / records.FAILED).exists():
        with _run_folders:
            shutil.rmtree(output)
            output.mkdir()
    if not (output / "encoder").exists():
        # An imported run has results alone. For a further evaluation it is trained, and evaluated.
        (output / records.SUMMARY).unlink(missing_ok=True)
    before = {"seconds": 0, "evaluations": [], **records.read_summary(output)}
    data = _data_flags(args, cell.flags)
    needed = folder / cell.needs / f"seed{seed}" / records.FAILED if cell.needs else None
    if needed and needed.exists():
        return _fail(cell, output, f"{cell.needs}, which it needs, has failed")
    # The script itself compares its flags with those of a run that was stopped in its evaluation.
    if not (output / records.SUMMARY).exists():
        own = [*_flags_of(cell, seed, folder), *data, f"--seed={seed}", f"--output_dir={output}"]
        failure = run_script([cell.script, *own, "--resume"], output / "log.txt")
        if failure:
            if "training diverged" not in failure:
                raise TrainingError(f"{cell.name}, seed {seed}: {failure} (see {output}/log.txt)")
            return _fail(cell, output, failure)
    for evaluation in cell.evaluations:
        if _is_evaluated(evaluation, before):
            continue
        data = _data_flags(args, [*cell.flags, *evaluation])
        arguments = ["evaluate", f"--run={output}", *data, *evaluation]
        if failure := run_script(arguments, output / "log.txt"):
            raise TrainingError(f"{cell.name}, seed {seed}: {failure} (see {output}/log.txt)")
    # A finished run needs no checkpoints; those of a paper's table would take some gigabytes.
    for unneeded in ("checkpoints", "client_states"):
        shutil.rmtree(output / unneeded, ignore_errors=True)
    training = records.summarize_training(output)
    seconds = before["seconds"] + _seconds(output, start)
    summary = {
        **before,
        # A call that was killed leaves the seconds of its rounds alone.
        "seconds": max(seconds, round(training.get("training_seconds", 0))),
        "evaluations": list(cell.evaluations),
        "flags": effective_flags(cell.flags),
        **training,
    }
    run_folder.write_json(output / records.SUMMARY, summary)
    (output / _STOPPED).unlink(missing_ok=True)
    return "done"


def _data_flags(args: Any, flags: Sequence[str]) -> list[str]:
    """The flag of the data's folder for a script with these flags; the digits read none."""
    if not args.data_dir or effective_flags(flags).get("dataset") == "digits":
        return []
    return [f"--data_dir={args.data_dir}"]


def _fail(cell: Cell, output: pathlib.Path, reason: str) -> str:
    """Records that a run has failed, and returns the outcome."""
    content = {"reason": reason, "flags": effective_flags(cell.flags)}
    run_folder.write_json(output / records.FAILED, content)
    return f"failed: {reason}"


def _flags_of(cell: Cell, seed: int, folder: pathlib.Path) -> list[str]:
    """The flags of a cell, with the folder of the run that it needs."""
    needed = folder / str(cell.needs) / f"seed{seed}"
    return [flag.replace("{needed}", str(needed)) for flag in cell.flags]


def _draw_partitions(experiment: Experiment, folder: pathlib.Path, args: Any) -> None:
    """Draws each partition with seed 0; those that need a run once it is done."""
    cells = {cell.name: cell for cell in experiment.cells}
    for name, cell_name in experiment.partitions.items():
        cell = cells[cell_name]
        output = folder / "partitions" / name
        needs_a_run = cell.needs and not (folder / cell.needs / "seed0" / "result.json").exists()
        flags, of_picture = effective_flags(cell.flags), output / "flags.json"
        is_drawn = (output / "partition.png").exists()
        # An imported picture does not say with which flags it was drawn.
        is_old = of_picture.exists() and checked_files.read_json(of_picture, {}) != flags
        if needs_a_run or (is_drawn and not is_old):
            continue
        shutil.rmtree(output, ignore_errors=True)
        run_folder.make(output)
        # `partition_report` does not know the training's flags, so that unknown ones are ignored.
        given = presets.expand(cell.flags)
        names = sorted({flag.removeprefix("--").partition("=")[0] for flag in given})
        ignored = f"--undefok={','.join(names)}"
        data = _data_flags(args, cell.flags)
        arguments = [*_flags_of(cell, 0, folder), *data, ignored, f"--output_dir={output}"]
        if failure := run_script(["partition_report", *arguments], output / "log.txt"):
            raise TrainingError(f"the partition {name}: {failure}")
        run_folder.write_json(of_picture, flags)


def _write_report(
    experiment: Experiment, folder: pathlib.Path
) -> tuple[pathlib.Path, pathlib.Path, Records]:
    """Writes `report.md` and `report.html`; their paths, and the records that they show."""
    pictures = {
        f"Partition {name}": path
        for name in experiment.partitions
        if (path := folder / "partitions" / name / "partition.png").exists()
    }
    with _run_folders:
        found = records.read_folder(folder)
    notes = (*experiment.notes, *_notes_on_changed_flags(experiment, found))
    with_notes = dataclasses.replace(experiment, notes=notes)
    return *report.write(folder, found, with_notes, pictures), found


def _print_tables(experiment: Experiment, found: Records) -> None:
    """Prints the tables, measured and published, and a verdict on each claim."""
    values, further = report.read_values(found, experiment), report.further_rows(found, experiment)
    for table in experiment.tables:
        print(f"\n{table.title}")
        own = values[table.title], further[table.title]
        grids = report.grids(found, experiment, table, *own)
        print(tables.aligned([row for _, grid in grids for row in grid]))
    print()
    for title, text, verdict in report.claim_rows(experiment, values):
        print(f"{verdict:14} {text} ({title})")
