"""Reads a command line into the configuration of a script."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Generic

from absl import flags

from launch.options import resuming, settings
from launch.options.settings import Config


@dataclasses.dataclass(frozen=True)
class Parsed(Generic[Config]):
    """A command line that has been read.

    Attributes:
      config: The configuration.
      values: The flags.
      rest: The name of the script, and the arguments that are not flags.
    """

    config: Config
    values: flags.FlagValues
    rest: Sequence[str]


def parse(
    cls: type[Config], script: str, argv: Sequence[str], before: Mapping[str, Any] | None = None
) -> Parsed[Config]:
    """Reads a command line, and the presets that it names.

    Args:
      cls: Class of the configuration.
      script: Name of the script.
      argv: The command line; the first argument is the name of the program.
      before: Result of `run_folder.read_config` for a run that is resumed. Flags that are not
        given, now or before, have its values, which differ from the defaults where the run has
        chosen them itself, such as an algorithm's default objective.

    Raises:
      flags.Error: If a flag is unknown, or a value is not allowed.
      ConfigurationError: If the `config.json` of the run is damaged.
    """
    values = flags.FlagValues()
    values.append_flag_values(flags.FLAGS)  # Those of absl.
    settings.define(cls, script, values)
    rest = values(list(argv))
    own = settings.settings(cls, script)
    given = [name for name in own if values[name].present]
    config = settings.build(cls, {name: values[name].value for name in own}, given, script)
    if before:
        resuming.check_algorithm(before["flags"], config)
        run = settings.build(cls, before["flags"])
        names = [name for name in before["flags"] if name not in resuming.OF_COMMAND]
        config = resuming.take_over(config, settings.flat(run), names)
    settings.check_numbers(values)
    return Parsed(config, values, rest)
