"""Names that flags take, and the nearest ones to a wrong name, without slow imports."""

import difflib
import functools
import pathlib
import re
import sys

import tff_ssl
from launch.options import settings
from launch.options.settings import Settings
from tff_ssl.errors import ConfigurationError

# Flag -> module and variable of the registry that has its names.
_REGISTRIES = {
    "algorithm": ("tff_ssl.algorithms.registry", "ALGORITHMS"),
    "algorithms": ("tff_ssl.algorithms.registry", "ALGORITHMS"),
    "objective": ("tff_ssl.objectives.registry", "OBJECTIVES"),
    "views": ("tff_ssl.views.policies", "POLICIES"),
}


def names(flag: str) -> tuple[str, ...]:
    """The names that a flag takes.

    A registry that is not loaded is read as source: its import would import TensorFlow, which takes
    seconds. One that is loaded may have entries that a program added.
    """
    module, variable = _REGISTRIES[flag]
    if module in sys.modules:
        return tuple(getattr(sys.modules[module], variable))
    return _in_source(module, variable)


@functools.cache
def _in_source(module: str, variable: str) -> tuple[str, ...]:
    folder = pathlib.Path(str(tff_ssl.__file__)).parent
    source = folder.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text()
    dictionary = source.partition(f"\n{variable}")[2].partition("\n}")[0]
    return tuple(re.findall(r'^    "(\w+)":', dictionary, re.MULTILINE))


def nearest(flag: str, name: str) -> str | None:
    """The name that is meant by a wrong name; None if it is right, one's own or unlike all."""
    known = names(flag)
    if name in known or ":" in name:  # `package.module:ENTRY` is one's own.
        return None
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1)), None)


def check(config: Settings) -> None:
    """Raises `ConfigurationError` for a wrong name that is nearly a right one.

    Other wrong names are found when the run is built, and named with all that are right there.
    """
    values = settings.flat(config)
    for flag in config.given & _REGISTRIES.keys() & values.keys():
        given = values[flag]
        for name in given if isinstance(given, tuple) else (given,):
            if name is not None and (near := nearest(flag, name)):
                raise ConfigurationError(
                    f"--{flag}={name}: did you mean {near}? All are: {', '.join(names(flag))}"
                )
