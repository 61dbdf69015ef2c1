"""The folder in which a script writes its results."""

import datetime
import pathlib

from tff_ssl.errors import ConfigurationError


def choose(output_dir: str | None, name: str) -> pathlib.Path:
    """The folder that `--output_dir` names, otherwise results/NAME-TIME; it is not created."""
    if output_dir:
        return pathlib.Path(output_dir)
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return pathlib.Path("results") / f"{name}-{now}"


def choose_empty(output_dir: str | None, name: str) -> pathlib.Path:
    """The folder of `choose`; a `ConfigurationError` if it has files, or is one."""
    folder = choose(output_dir, name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"--output_dir={folder} is not empty: name a new folder")
    return folder
