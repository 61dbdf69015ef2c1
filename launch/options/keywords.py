"""Reads the configuration of a run on a program's images from keyword arguments."""

import dataclasses
import difflib
import pathlib
from collections.abc import Mapping
from typing import Any

from datasets import catalog
from launch.options import command_line, data, known_names, presets, settings
from launch.options.run_config import RunConfig
from launch.outputs import commands
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError

# Flags of `launch.pretrain` that `train` does not take, and what to do instead.
_NO_OPTIONS = {
    "seeds": "call train for each seed, with seed=N",
    "list": f"{commands.module('launch.pretrain', '--list')} prints the names",
    "output_dir": "name the folder with folder=PATH",
    "resume": "a run that was stopped in folder=PATH continues without it",
    **dict.fromkeys(data.IMAGE_FLAGS, "the images are those of clients, as they are"),
}


def read(
    algorithm: str,
    encoder: str | None,
    rounds: int | None,
    seed: int,
    folder: str | pathlib.Path,
    options: Mapping[str, Any],
) -> RunConfig:
    """The configuration of a run on arrays, whose cases are the clients.

    The default preset is that of a folder of images.
    """
    if near := known_names.nearest("algorithm", algorithm):
        raise ConfigurationError(f"algorithm={algorithm!r}: did you mean {near!r}?")
    preset = presets.of_algorithm(algorithm, "case_folder", "init_from" in options)
    flags: dict[str, Any] = {"flagfile": preset, "dataset": catalog.ARRAYS, "partition": "per_case"}
    flags |= {"output_dir": folder, "resume": pathlib.Path(folder, "config.json").exists()}
    flags |= {"algorithm": algorithm, "seed": seed, "encoder": encoder, "rounds": rounds}
    arguments = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    arguments += _arguments(algorithm, options)
    try:
        config, _ = command_line.parse(RunConfig, "pretrain", ["train", *arguments])
    except Exception as error:
        raise ConfigurationError(" ".join(str(error).split())) from error
    return config


def _arguments(algorithm: str, options: Mapping[str, Any]) -> list[str]:
    """Flags and hyperparameters of an algorithm as on the command line."""
    known = settings.settings(RunConfig, "pretrain")
    entry = registry.find(algorithm, None)
    own = [field.name for field in dataclasses.fields(entry.hyperparameters)]
    arguments = []
    for name, value in options.items():
        if value is None:  # As if it were not given.
            continue
        items = value if isinstance(value, tuple | list) else [value]
        if name in _NO_OPTIONS:
            raise ConfigurationError(f"{name} is no option of train: {_NO_OPTIONS[name]}")
        if name in own or f"{name}_" in own:  # `lambda_`, which `**{"lambda": 20}` may name, too.
            arguments.append(f"--hparam={name}={value}")
        elif name not in known:
            nearest = difflib.get_close_matches(name, [*own, *known], 1)
            hint = f" (did you mean {nearest[0]}?)" if nearest else ""
            raise ConfigurationError(
                f"{name} is neither a hyperparameter of {algorithm} nor a flag of pretrain{hint}"
            )
        elif known[name].repeated:
            arguments += [f"--{name}={item}" for item in items]
        else:
            arguments.append(f"--{name}={','.join(map(str, items))}")
    return arguments
