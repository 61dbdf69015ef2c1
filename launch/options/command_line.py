"""Reads a command line into the configuration of a script."""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from datasets import catalog
from launch.options import data, defaults, known_names, presets, resuming, settings
from launch.options.settings import Config
from tff_ssl import whole_files
from tff_ssl.algorithms import named_code
from tff_ssl.errors import ConfigurationError


def parse(
    cls: type[Config], script: str, argv: Sequence[str], before: Mapping[str, Any] | None = None
) -> tuple[Config, list[str]]:
    """Reads a command line and its presets: the configuration, and the arguments that are no flags.

    Args:
      argv: The command line, the name of the program first.
      before: Result of `run_folder.read_config` for a run that is resumed.

    Raises:
      flags.Error: If a flag is unknown, or a value is not allowed.
      ConfigurationError: If a name is nearly a right one, or `--data_dir` would not be read.
    """
    values = flags.FlagValues()
    values.append_flag_values(flags.FLAGS)  # Those of absl.
    settings.define(cls, script, values)
    rest = values(list(argv))[1:]
    settings.check_numbers(values)
    own = settings.settings(cls, script)
    # An empty value takes back a flag that is not recorded.
    given = [n for n in own if values[n].present and (own[n].recorded or values[n].value)]
    for name in given:
        value = values[name].value
        # Such as `--data_dir=$FOLDER` without the variable, which would be the working directory.
        if value == "":
            raise ConfigurationError(
                f"--{name}= is empty: give it a value, or leave it out (is a variable not set?)"
            )
        if isinstance(value, str) and "\0" in value:
            raise ConfigurationError(f"--{name}={value!r} has a zero byte: leave it out")
        if isinstance(value, str) and whole_files.is_odd(value):
            raise ConfigurationError(
                f"--{name}={value} is a pipe or a device: name a file or a folder"
            )
    if {"encoder", "init_from"} <= set(given) and not presets.given(argv, "encoder"):
        given.remove("encoder")  # That of a preset gives way to that of the weights.
    config = settings.build(cls, {name: values[name].value for name in own}, given, script)
    known_names.check(config)
    named_code.add_by_user({name: values[name].value for name in given})
    resumed = resuming.resumed(config, before) if before else config
    values = settings.flat(resumed)
    is_known = "partition" in config.given or not catalog.is_own(values.get("dataset") or "")
    if values.get("partition") and is_known and not before:
        # A preset may have those of a partition that the command line replaces.
        on_command_line = [name for name in config.given if presets.given(argv, name)]
        defaults.check_partition(values["partition"], values, on_command_line)
    if "run" not in values:  # Otherwise the run may have another data set.
        data.check_folder(values.get("dataset"), values.get("data_dir"), config.given)
    data.check_output(resumed)
    return resumed, rest
