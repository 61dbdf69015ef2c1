"""Takes runs from a file of `measured/` into a folder of runs, and the other way round."""

import pathlib
from collections.abc import Mapping
from typing import Any

from datasets import describe
from launch.outputs import plots, run_folder
from tff_ssl import whole_files
from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import records
from tff_ssl.reporting.records import Records, Run


def import_runs(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the runs and partitions of a file to a folder, as `launch.reproduce` leaves them.

    A run that the folder already has, done or not, is kept.

    Raises:
      ConfigurationError: The file cannot be read, or the folder holds something else.
    """
    found = records.read_file(path)
    if (folder / "config.json").exists():
        raise ConfigurationError(f"--output_dir={folder} holds a run; name another folder")
    run_folder.make(folder)
    run_folder.lock(folder)
    records.merge(records.read_folder(folder), found, f"--output_dir={folder}")
    run_folder.write_json(folder / records.IDENTITY, found.identity)
    new = 0
    for cell, runs in found.runs.items():
        for seed, run in runs.items():
            if not (folder / cell / f"seed{seed}").exists():
                _write_run(run, folder / cell / f"seed{seed}")
                new += 1
    for name, picture in found.partitions.items():
        output = folder / "partitions" / name
        if not (output / "partition.png").exists():
            run_folder.make(output)
            run_folder.write_json(output / "partition.json", {"picture": picture})
            plots.save(describe.draw(picture), output / "partition.png", dpi=120)
    print(f"took {new} runs from {path}", flush=True)


def _write_run(run: Run, folder: pathlib.Path) -> None:
    """Writes the files of a run that is over, all of them or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.replacing_folder(folder) as new:
        for name, content in run.results.items():
            run_folder.write_json(new / f"{name}.json", content)
        end = records.FAILED if run.failure else records.SUMMARY
        run_folder.write_json(new / end, run.failure or run.summary)


def export_runs(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Adds the runs of a folder that have ended to a file, which may be missing.

    They replace those of the same cells and seeds; others stay, e.g. a seed that was run elsewhere.

    Raises:
      ConfigurationError: As `read_target`; or the file cannot be written.
    """
    found = records.read_folder(folder)
    merged = records.merge(read_target(path, found.identity), found, str(path))
    try:
        whole_files.write(path, records.to_text(merged))
    except OSError as error:
        raise ConfigurationError(f"--export_to={path} cannot be written ({error})") from error
    print(f"{path} has {sum(run.is_over for run in merged.all_runs())} runs now")


def read_target(path: pathlib.Path, identity: Mapping[str, Any]) -> Records:
    """The records of a file to which runs will be added; none if it is missing.

    Raises:
      ConfigurationError: The file cannot be read or holds another reproduction, or has no folder.
    """
    if not path.parent.is_dir():
        raise ConfigurationError(f"--export_to={path}: there is no folder {path.parent}")
    before = records.read_file(path) if path.exists() else Records({}, {})
    return records.merge(before, Records(identity, {}), str(path))
