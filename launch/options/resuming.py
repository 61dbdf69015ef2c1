"""Resumes a run with the flags that it was begun with, which lie in its `config.json`."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from launch.options import presets
from launch.outputs import run_folder
from tff_ssl.errors import ConfigurationError

_RESUME = re.compile(r"--?(no)?resume(?:=(.*))?")
# Flags of this command, and not of the run.
_OF_COMMAND = ("output_dir", "resume", "list")


def find(argv: Sequence[str], script: str) -> dict[str, Any]:
    """The content of the `config.json` of the run that a command line resumes.

    Args:
      argv: The command line.
      script: Name of the script, such as `pretrain`.

    Returns:
      The content; empty without `--resume`, or if the folder holds no run yet.

    Raises:
      ConfigurationError: If `--output_dir` is missing, or the run is of another script.
    """
    if not _is_given(argv):
        return {}
    folders = presets.given(argv, "output_dir")
    if not folders:
        raise ConfigurationError("--resume needs --output_dir=RUN, the folder of the run")
    folder = pathlib.Path(folders[-1])
    config = run_folder.read_config(folder)
    if config:
        run_folder.check_script(folder, config["flags"], script)
    return config


def _is_given(argv: Sequence[str]) -> bool:
    """Whether a command line has `--resume`; of several, the last one counts."""
    matches = [match for match in map(_RESUME.fullmatch, argv[1:]) if match]
    if not matches:
        return False
    negated, value = matches[-1].groups()
    return not negated and (value or "true").lower() in ("true", "t", "1", "yes", "y")


def given_flags(config: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
    """The flags that a run was begun with, as a command line gives them.

    Args:
      config: The content of its `config.json`. Earlier versions did not write which of the flags
        were given; then there are none, and the command line has to give them again.
      argv: The command line that resumes the run. Flags that may be given several times, such as
        `--leave`, are left out if it gives them, since the values would add up; of hyperparameters,
        the last value counts.
    """
    arguments = []
    for name in config.get("given", ()):
        value = config["flags"][name]
        if name in _OF_COMMAND or value is None:
            continue
        if isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no'}{name}")
        elif isinstance(value, list) and name in _repeatable():
            if name != "hparam" and presets.given(argv, name):
                continue
            arguments += [f"--{name}={item}" for item in value]
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else value
            arguments.append(f"--{name}={text}")
    return arguments


def _repeatable() -> set[str]:
    """Names of the flags that may be given several times."""
    return {name for name in flags.FLAGS if isinstance(flags.FLAGS[name], flags.MultiFlag)}


def check_algorithm(config: Mapping[str, Any], args: flags.FlagValues) -> None:
    """Checks that the algorithm and the objective are those of the run that is resumed.

    The other flags are compared when the run's folder is opened. These two are compared at once,
    because an error about a hyperparameter of another algorithm would mislead.

    Args:
      config: The content of the run's `config.json`; empty if no run is resumed.
      args: The flags.

    Raises:
      flags.IllegalFlagValueError: If they are others.
    """
    for name in ("algorithm", "objective"):
        if name in args and args[name].present and name in config.get("flags", {}):
            value = config["flags"][name]
            if args[name].value != value:
                raise flags.IllegalFlagValueError(
                    f"--{name}={args[name].value}: the run that is resumed has {value}"
                )


def take_over_defaults(config: Mapping[str, Any], args: flags.FlagValues) -> None:
    """Sets flags that were not given, now or before, to the values of the run.

    They differ from the defaults where the run has chosen them itself, such as an algorithm's
    default objective.

    Args:
      config: The content of the run's `config.json`; empty if no run is resumed.
      args: The flags, which are changed.
    """
    if "given" in config:
        names = [name for name in config["flags"] if name in args and name not in _OF_COMMAND]
        run_folder.take_over(config["flags"], names, args)
