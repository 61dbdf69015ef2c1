"""The folder of a run: its lock, and its `config.json`, which holds the run's configuration."""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from launch.outputs import commands, same_run
from tff_ssl import whole_files
from tff_ssl.algorithms import named_code
from tff_ssl.errors import ConfigurationError

# Folders that this process has locked, and their descriptors, by absolute path; the locks end with
# the process.
_locked: dict[pathlib.Path, tuple[pathlib.Path, int]] = {}
_opened: set[pathlib.Path] = set()  # Folders in which this process trains a run.
# Entries of `config.json` besides the flags of the run.
_ABOUT = (
    "given", "versions", "git_commit", "rounds_before", "folder", "data_digests", "digest",
)  # fmt: skip
LOCAL_RAY = "local:"  # Start of a value of `--ray` without an address.
_OF_SEED = "seed_"  # Start of the name of a run's folder, with `--seeds`.
# What a run, evaluations and exports of it write after the last round. The results are the first
# to move: `--seeds` takes a run with results for finished.
_AFTER_TRAINING = (
    "result*.json", "encoder", "clients", "run.html", "embed.html", "export", f"{_OF_SEED}[0-9]*",
    "summary.csv", "compare.html", "visualize.json", "features.png", "distances.png",
)  # fmt: skip
_VERSIONS = ("tensorflow", "tensorflow-federated", "numpy", "scikit-learn")


def open_run(
    folder: pathlib.Path,
    config: dict[str, Any],
    given: Collection[str],
    resume: bool,
    data: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Locks the folder for a run, which it creates if needed, and writes `config.json`.

    A resumed run updates the flags that may change and, with more rounds, `rounds_before`: a list
    of the earlier numbers of rounds. Its encoder and results then move to `rounds_N/`, where N is
    the earlier number.

    Args:
      config: The configuration, as `options.settings.to_json` gives it.
      given: Names of the flags that the command line or a preset gives.
      data: Hashes of the parts of the data set by their names, see
        `partition_record.data_digests`.

    Raises:
      ConfigurationError: The folder holds a run that is not to be resumed, or one with other flags
        or data, or a changed `config.json`, or a link.
    """
    path = folder / "config.json"
    check_place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock(folder)  # It also looks for links, which takes a walk through the folder.
    _opened.add(folder)
    if path.exists():
        if not resume:
            raise ConfigurationError(
                f"--output_dir={folder} already holds a run: add --resume to continue it, or "
                "name another folder"
            )
        before = read_config(folder)
        same_run.check_unchanged(folder, before)
        same_run.check(folder, before, _flat(config), given, data)
        _update_config(path, config, given, before, data)
        return
    if any(folder.glob("checkpoints/*")):
        raise ConfigurationError(f"--output_dir={folder} holds checkpoints but no config.json")
    versions = {"python": sys.version.split()[0]}
    versions |= {name: importlib.metadata.version(name) for name in _VERSIONS}
    about = {"given": sorted(given), "versions": versions, "git_commit": _git_commit()}
    _write_config(path, config | about, data)


def _write_config(path: pathlib.Path, content: dict[str, Any], data: Mapping[str, str]) -> None:
    content["folder"] = str(path.parent.resolve())
    if data:
        content["data_digests"] = dict(data)
    write_json(path, content | {"digest": same_run.digest(content)})


def _update_config(
    path: pathlib.Path,
    config: dict[str, Any],
    given: Collection[str],
    before: Mapping[str, Any],
    data: Mapping[str, str],
) -> None:
    """Writes the flags of a resumed run; tells what more rounds mean for learning rates."""
    about = {name: before[name] for name in _ABOUT if name in before and name != "digest"}
    about["given"] = sorted({*before["given"], *given})
    were, rounds = before["flags"].get("rounds"), _flat(config).get("rounds")
    if rounds != were:
        about["rounds_before"] = [*before.get("rounds_before", []), were]
        print(
            f"note: the run had {were} rounds and now has {rounds}; learning rates that decay over "
            "the rounds continue as in a run of that length",
            flush=True,
        )
        _set_aside(path.parent, were)
    _write_config(path, {**config, **about}, data)


def _set_aside(folder: pathlib.Path, rounds: int) -> None:
    """Moves what a run wrote after its last round to `rounds_N/`.

    If the run is stopped before its new last round, its folder has no encoder and no results of
    fewer rounds than `config.json` says.
    """
    found = [path for pattern in _AFTER_TRAINING for path in sorted(folder.glob(pattern))]
    # A seed's folder may also be a run of its own, if the run was started in a folder of `--seeds`.
    written = [path for path in found if not (path / "config.json").exists()]
    if not written:
        return
    aside = folder / f"rounds_{rounds}"
    aside.mkdir(exist_ok=True)
    for path in written:
        whole_files.remove(aside / path.name)
        path.rename(aside / path.name)
    print(f"note: its encoder and results up to now are in {aside}/", flush=True)


def commands_to_resume() -> list[str]:
    """The commands that continue the runs that this process has opened."""
    return [resume_command(folder) for folder in _opened if "script" in read_flags(folder)]


def moved() -> list[pathlib.Path]:
    """The folders that this process has locked and that are no longer at their paths."""
    folders = []
    for path, (folder, descriptor) in _locked.items():
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                continue
        folders.append(folder)
    return folders


def resume_command(folder: pathlib.Path, *more: str) -> str:
    """The command that continues the run in a folder, with more flags if there are any."""
    flags = read_flags(folder)
    # What `--resume` does not take from `config.json`, which may be a stranger's.
    again = [f"--{n}={','.join(words)}" for n, words in named_code.of_flags(flags).items()]
    ray = flags.get("ray")
    if ray and not ray.startswith(LOCAL_RAY):
        again.append(f"--ray={ray}")
    script = f"launch.{flags.get('script', 'pretrain')}"
    return commands.module(script, "--resume", f"--output_dir={folder}", *more, *again)


def make(folder: pathlib.Path) -> None:
    """Creates an output folder if it does not exist; one in or of a run must be without links."""
    for run in (folder, folder.absolute().parent):
        if (run / "config.json").exists():
            check_links(run)
    check_place(folder)
    folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def new(folder: pathlib.Path) -> Iterator[None]:
    """Creates an output folder by `make`; if the block fails, a new folder is removed again."""
    is_new = not folder.exists()
    make(folder)
    try:
        yield
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # It is not empty.
                folder.rmdir()
        raise


def check_place(folder: pathlib.Path) -> None:
    """Raises `ConfigurationError` if a folder cannot be created or written to."""
    if any("\ud800" <= character <= "\udfff" for character in str(folder)):
        raise ConfigurationError(
            f"--output_dir={folder} is no text in UTF-8, and TensorFlow writes to no such folder"
        )
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise ConfigurationError(
            f"--output_dir={folder} cannot be written to: {error.strerror}"
        ) from error


def check_links(folder: pathlib.Path) -> None:
    """Raises a ConfigurationError if something in an output folder is a symbolic link.

    What is written there would otherwise go where the link leads, such as to a program of the user
    if the folder comes from somebody else.
    """
    odd = whole_files.first_odd(folder)
    if odd is not None and not odd.is_symlink():
        raise ConfigurationError(f"{odd} is a pipe or a device, which no run writes: delete it")
    if odd is not None:
        raise ConfigurationError(
            f"{odd} is a link to {os.readlink(odd)}, and a run writes into its own folder only: "
            "delete the link, or put what it leads to in its place"
        )


def lock(folder: pathlib.Path, flag: str = "--output_dir") -> None:
    """Locks a folder until this process ends; other processes get an error that names the flag.

    The folder must be without links.
    """
    check_links(folder)
    if folder.resolve() in _locked:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        message = f"{flag}={folder} is in use: another process runs in it"
        raise ConfigurationError(message) from None
    except OSError:
        pass  # The file system has no locks.
    _locked[folder.resolve()] = folder, descriptor


def read_flags(folder: pathlib.Path) -> dict[str, Any]:
    """The flags of the run in a folder, and its `script`; empty if it has no `config.json`."""
    return read_config(folder).get("flags", {})


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """The content of a folder's `config.json`; empty if it has none.

    It has `flags`, those of all sections by name; `given`; `is_earlier`, whether a release without
    sections wrote it; `is_changed`, whether it is not as a run wrote it; and the other entries of
    the file.
    """
    path = folder / "config.json"
    if not path.exists():
        return {}
    if whole_files.is_odd(str(path)):
        raise ConfigurationError(f"{path} is a pipe or a device, which no run writes: delete it")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        flags = _flat({name: value for name, value in content.items() if name not in _ABOUT})
        # Early releases did not write which flags were given.
        set_by_run = [name for name, value in flags.items() if value is not None]
        given = [name for name in content.get("given", set_by_run) if [flags[name]]]
        about = {name: content[name] for name in _ABOUT if name in content}
        is_earlier = "flags" in content  # The layout of earlier releases.
        if not flags:
            raise ValueError("it is empty")
        digest = content.pop("digest", None)
        is_changed = digest is not None and digest != same_run.digest(content)
        kinds = {"is_earlier": is_earlier, "is_changed": is_changed}
        return {**about, "flags": flags, "given": given, **kinds}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({type(error).__name__}: {error}): put back a whole one, or "
            "start the run anew in another --output_dir"
        ) from error


def is_from_elsewhere(folder: pathlib.Path) -> bool:
    """Whether another user made the run in a folder, or it was made in another folder."""
    path = folder / "config.json"
    if not path.exists():
        return False
    made_in = read_config(folder).get("folder", str(folder.resolve()))
    return path.stat().st_uid != os.getuid() or made_in != str(folder.resolve())


def training_digest(folder: pathlib.Path) -> str:
    """A hash of the flags on which the training of the run in a folder depends."""
    return same_run.training_digest(read_flags(folder))


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a configuration, also in sections, by name."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= _flat(value) if isinstance(value, dict) else {name: value}
    return found


def encoder_of(folder: pathlib.Path) -> pathlib.Path:
    """The SavedModel in the folder of a run or of a client; otherwise the folder itself."""
    return folder / "encoder" if (folder / "encoder").is_dir() else folder


def run_of(folder: pathlib.Path) -> pathlib.Path:
    """The run of a folder: RUN, RUN/clients/K, RUN/clients/K/local, or the `encoder/` of one."""
    folder = folder.absolute()  # A relative path such as `.` has no name.
    if (folder / "config.json").exists():  # A run may have such a name itself.
        return folder
    if folder.name in ("encoder", "local"):
        return run_of(folder.parent)
    return folder.parent.parent if folder.parent.name == "clients" else folder


def is_stopped(folder: pathlib.Path) -> bool:
    """Whether a folder has a run with checkpoints, and without an encoder."""
    is_run = (folder / "config.json").exists() and not (folder / "encoder").is_dir()
    return is_run and any(folder.glob("checkpoints/*.npz"))


def seed_runs(folder: pathlib.Path) -> dict[int, pathlib.Path]:
    """The runs of `--seeds` in a folder, by seed, in order; none if the folder is a run itself."""
    if (folder / "config.json").exists():
        return {}
    paths = [path.parent for path in folder.glob(f"{_OF_SEED}*/config.json")]
    seeds = {path.name.removeprefix(_OF_SEED): path for path in paths}
    return dict(sorted((int(seed), path) for seed, path in seeds.items() if seed.isdecimal()))


def of_seed(folder: pathlib.Path, seed: int) -> pathlib.Path:
    """The folder of a seed of `--seeds`."""
    return folder / f"{_OF_SEED}{seed}"


def runs_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The runs of `--seeds` in a folder; otherwise the folder itself."""
    return list(seed_runs(folder).values()) or [folder]


def name_of_model(run: pathlib.Path) -> str:
    """`global`; or `evaluated`, if a client's model stands for the run."""
    path = run / "result.json"
    results = json.loads(path.read_text()) if path.exists() else []
    return "evaluated" if any("client" in result for result in results) else "global"


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes a JSON file, as `whole_files` does."""
    whole_files.write(path, json.dumps(content, indent=2) + "\n")


def _git_commit() -> str | None:
    """The commit of this repository, with a "+" if files differ from it; None outside of git."""
    root = pathlib.Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
