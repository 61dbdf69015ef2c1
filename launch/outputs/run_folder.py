"""The folder of a run: who owns it, with which settings, and what was written there."""

import fcntl
import importlib.metadata
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from absl import flags

from tff_ssl.errors import ConfigurationError

# Flags that may differ when a run goes on: they do not change what it computes.
_FREE = {
    "resume",
    "output_dir",
    "data_dir",
    "checkpoint_every",
    "list",
    "max_concurrent_calls",
    "max_dropped",
    "round_timeout",
    "ray",
}
# What belongs to a run's data set and does not hold for another one.
_OF_A_DATASET = {"image_size", "per_case"}
# Folders that this process keeps for itself -> descriptors with which the system's locks end.
_locked: dict[pathlib.Path, int] = {}
_VERSIONS = ("tensorflow", "tensorflow-federated", "numpy", "scikit-learn")


def settings(script: str, args: flags.FlagValues) -> dict[str, Any]:
    """The script's flags by name."""
    return {"script": script, **{flag.name: json_value(flag.value) for flag in own_flags(args)}}


def json_value(value: Any) -> Any:
    """JSON has no infinity (`--alpha=inf`)."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def own_flags(args: flags.FlagValues) -> list[flags.Flag]:
    """The flags of our own scripts, without absl's."""
    by_module = args.flags_by_module_dict()
    own = [flag for name, group in by_module.items() if _is_ours(name) for flag in group]
    return sorted(own, key=lambda flag: flag.name)


def _is_ours(module: str) -> bool:
    return module.startswith("launch") or module == sys.argv[0]


def open_run(folder: pathlib.Path, config: dict[str, Any], resume: bool) -> None:
    """Claims the folder for a run, and writes `config.json`.

    Raises:
      ConfigurationError: If the folder holds a run and `--resume` is not given, or one with other
        settings.
    """
    path = folder / "config.json"
    make(folder)
    lock(folder)
    if path.exists():
        if not resume:
            raise ConfigurationError(
                f"--output_dir={folder} already holds a run: add --resume to go on with it, or "
                "name another folder"
            )
        _check_same(folder, config)
        return
    if any(folder.glob("checkpoints/*")):
        raise ConfigurationError(f"--output_dir={folder} holds checkpoints but no config.json")
    write_json(path, {"flags": config, "versions": _versions(), "git_commit": _git_commit()})


def make(folder: pathlib.Path) -> None:
    """Makes an output folder where there is none.

    Raises:
      ConfigurationError: If it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigurationError(
            f"--output_dir={folder} cannot be written to: {error.strerror}"
        ) from error


def lock(folder: pathlib.Path) -> None:
    """Keeps other processes out of a folder until this one ends, however it ends.

    Raises:
      ConfigurationError: If another process works in it.
    """
    if folder.resolve() in _locked:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigurationError(
            f"--output_dir={folder} is in use: another process runs in it"
        ) from None
    except OSError:  # A file system without locks.
        os.close(descriptor)
    else:
        _locked[folder.resolve()] = descriptor


def read_flags(folder: pathlib.Path) -> dict[str, Any]:
    """The flags of the run in a folder; none where it has no `config.json`.

    Raises:
      ConfigurationError: If the file is not one that `open_run` wrote.
    """
    path = folder / "config.json"
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text())["flags"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def take_over(before: dict[str, Any], names: Iterable[str], args: flags.FlagValues) -> None:
    """Takes over a run's flags that are not given anew.

    Args:
      before: Its flags.
      names: Which of them.
      args: The flags of this script, which are changed.
    """
    elsewhere = args["dataset"].present and args.dataset != before.get("dataset")
    for name in names:
        if elsewhere and name in _OF_A_DATASET:
            continue
        if not args[name].present and name in before:
            args[name].value = before[name]


def encoder_of(folder: pathlib.Path) -> pathlib.Path:
    """The SavedModel in the folder of a run or of a client; or else the folder itself."""
    return folder / "encoder" if (folder / "encoder").is_dir() else folder


def run_of(folder: pathlib.Path) -> pathlib.Path:
    """The run of a folder: RUN, RUN/clients/K, RUN/clients/K/local, or the `encoder/` of one."""
    folder = folder.absolute()  # So that `.` has a name.
    for inside in ("encoder", "local"):
        folder = folder.parent if folder.name == inside else folder
    return folder.parent.parent if folder.parent.name == "clients" else folder


def _check_same(folder: pathlib.Path, config: dict[str, Any]) -> None:
    before = read_flags(folder)
    if before.get("script") != config.get("script"):
        raise ConfigurationError(
            f"--output_dir={folder} holds a run of launch.{before.get('script')}: name another "
            "folder"
        )
    names = (before.keys() | config.keys()) - _FREE
    differ = [
        f"--{name}={config.get(name)} (the run has {before.get(name)})"
        for name in sorted(names)
        if before.get(name) != config.get(name)
    ]
    if differ:
        raise ConfigurationError(
            f"--resume with other settings than the run's: {'; '.join(differ)}"
        )


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes a file that is whole or not there, whoever else writes it at the same time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)


def _versions() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in _VERSIONS}
    return {"python": sys.version.split()[0], **versions}


def _git_commit() -> str | None:
    """The commit of this repository, with a plus where files differ from it; None outside one."""
    root = pathlib.Path(__file__).parent.parent.parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
