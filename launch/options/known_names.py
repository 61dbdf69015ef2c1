"""Names that flags take, and the nearest ones to a wrong name, without slow imports."""

import ast
import difflib
import functools
import pathlib

import tff_ssl
from launch.options import settings
from launch.options.settings import Settings
from tff_ssl.errors import ConfigurationError

# Flag -> file and variable of the registry that has its names.
_REGISTRIES = {
    "algorithm": ("algorithms/registry.py", "ALGORITHMS"),
    "algorithms": ("algorithms/registry.py", "ALGORITHMS"),
    "objective": ("objectives/registry.py", "OBJECTIVES"),
    "views": ("views/policies.py", "POLICIES"),
}


@functools.cache
def names(flag: str) -> tuple[str, ...]:
    """The names that a flag takes, read from the source of their registry.

    An import of the registry would import TensorFlow, which takes seconds.
    """
    file, variable = _REGISTRIES[flag]
    path = pathlib.Path(str(tff_ssl.__file__)).parent / file
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id == variable:
            return tuple(key.value for key in node.value.keys if isinstance(key, ast.Constant))
    raise AssertionError(f"{path} has no dictionary {variable}")


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
