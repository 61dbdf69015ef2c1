"""Takes over the settings of an earlier run from its `config.json`."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from launch.options import data, defaults, presets, settings
from launch.options.run_config import RunConfig
from launch.options.settings import Config, Settings
from launch.outputs import run_folder, same_run
from tff_ssl.algorithms import named_code
from tff_ssl.errors import ConfigurationError

_RESUME = re.compile(r"--?(no)?resume(?:=(.*))?")
_OF_COMMAND = {"output_dir", "resume", "list"}  # Flags of a command, not of its run.
_PLACES = {"data_dir", "init_from", "cluster_encoder", "alignment_encoder", "edge_list"}
# What may have to be given again, because a run's files may come from anybody.
NOT_FROM_FILES = {*named_code.FLAGS, *_PLACES, "ray"}
# Flags that do not hold for another data set.
_OF_DATASET = ("image_size", "per_case", "follow_links", "skip_broken")


def find(argv: Sequence[str], script: str) -> dict[str, Any]:
    """`run_folder.read_config` of the run that `--resume` continues; empty if there is none.

    Of the runs of `--seeds`, it is that of the first one.
    """
    if not _is_given(argv):
        return {}
    folders = presets.given(argv, "output_dir")
    if not folders:
        raise ConfigurationError("--resume needs --output_dir=RUN, the folder of the run")
    folder = pathlib.Path(folders[-1])
    if not folder.exists():
        raise ConfigurationError(
            f"--resume: --output_dir={folder} does not exist; leave --resume out to start a run"
        )
    if runs := run_folder.seed_runs(folder):
        if not presets.given(argv, "seeds"):
            seeds = ",".join(map(str, runs))
            raise ConfigurationError(
                f"--output_dir={folder} holds runs of several seeds: add --seeds={seeds}"
            )
        folder = next(iter(runs.values()))
    content = run_folder.read_config(folder)
    if runs:
        content = {**content, "given": [name for name in content["given"] if name != "seed"]}
    if content:
        same_run.check_script(folder, content["flags"], script)
        same_run.check_unchanged(folder, content)
        if content["is_earlier"]:
            raise ConfigurationError(
                f"--output_dir={folder} holds a run of an earlier release, which this one cannot "
                "resume: start it anew in another folder"
            )
    return content


def without_request(argv: Sequence[str]) -> list[str]:
    """The command line without `--resume`."""
    return [argument for argument in argv if not _RESUME.fullmatch(argument)]


def _is_given(argv: Sequence[str]) -> bool:
    """Whether a command line has `--resume`; the last one counts."""
    matches = [match for match in map(_RESUME.fullmatch, argv[1:]) if match]
    if not matches:
        return False
    negated, value = matches[-1].groups()
    return not negated and (value or "true").lower() in ("true", "t", "1", "yes", "y")


def as_arguments(config: Settings, names: Iterable[str]) -> list[str]:
    """Flags of a configuration as on a command line; those without a value are left out."""
    values, known = settings.flat(config), settings.settings(type(config))
    arguments = []
    for name in sorted(names):
        value = values[name]
        if isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no'}{name}")
        elif known[name].repeated:
            arguments += [f"--{name}={item}" for item in value]
        elif value is not None:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            arguments.append(f"--{name}={text}")
    return arguments


def resumed(config: Config, before: Mapping[str, Any]) -> Config:
    """The configuration with the values of the resumed run for flags that are not given.

    Flags that were given at the run's start count as given; the run may have chosen others itself,
    such as an algorithm's default objective. Hyperparameters are added to those of the run; of
    each, the last value counts.

    `before` is the result of `run_folder.read_config` for the run.

    Raises:
      flags.IllegalFlagValueError: If the algorithm or the objective differs. Other flags are
        compared when the run's folder is opened; these two now, because an error about another
        algorithm's hyperparameter would mislead.
    """
    run = settings.flat(settings.build(type(config), before["flags"]))
    now = settings.flat(config)
    for name in config.given & {"algorithm", "objective"} & before["flags"].keys():
        if now[name] != run[name]:
            raise flags.IllegalFlagValueError(
                f"--{name}={now[name]}: the run that is resumed has {run[name]}"
            )
    ray = run.get("ray")
    if ray and not ray.startswith(run_folder.LOCAL_RAY) and "ray" not in config.given:
        raise ConfigurationError(
            "config.json of the run names a Ray cluster, and a run connects only to one that you "
            f"name: add --ray={ray} if you trust it, or compute here with "
            f"--ray={run_folder.LOCAL_RAY}N"
        )
    folder = pathlib.Path(now["output_dir"]) if now.get("output_dir") else None
    config = take_over(config, run, before["flags"].keys() - _OF_COMMAND, folder)
    if "hparam" in config.given:
        config = settings.replace(config, hparam=(*run["hparam"], *now["hparam"]))
    return dataclasses.replace(config, given=config.given | set(before["given"]))


def take_over(
    config: Config, run: Mapping[str, Any], names: Iterable[str], folder: pathlib.Path | None = None
) -> Config:
    """The configuration with the values of an earlier run for flags that are not given.

    Code that the run names is not imported unless it is given, too.

    Args:
      folder: Folder of the run; None for values of other files.

    Raises:
      ConfigurationError: If the run was made elsewhere, and names files or folders to read.
    """
    kept = set(config.given)
    if "dataset" in kept and settings.flat(config)["dataset"] != run.get("dataset"):
        kept |= set(_OF_DATASET)
    if "labels_per_class" in kept:
        kept.add("labels")  # Given in place of it.
    taken = {n: run[n] for n in names if n in run and n not in kept}
    named_code.add_in_file(run)
    known = settings.settings(type(config), config.script or None)
    for name in _PLACES & taken.keys() & known.keys() if folder else ():
        if taken[name] and folder and run_folder.is_from_elsewhere(folder):
            raise ConfigurationError(
                f"{folder} was made elsewhere, by another user or in another folder, and its "
                f"config.json names what to read here: add --{name}={taken[name]} if you agree"
            )
    config = settings.replace(config, **taken)
    data.check_output(config)
    return config


def read_run(folder: pathlib.Path) -> RunConfig | None:
    """The configuration of the run in a folder; None if it holds none."""
    content = run_folder.read_config(folder)
    if not content:
        return None
    values = content["flags"]
    named_code.add_in_file(values)
    config = settings.build(RunConfig, values, content["given"], values.get("script", ""))
    # Values that follow from others, such as the size of views from `--init_from`, are recorded.
    recorded = [name for name, value in values.items() if value is not None]
    return defaults.resolve(config, config.algorithm.objective, recorded)
