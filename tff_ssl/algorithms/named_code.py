"""Code that a text names, such as `package.module:ENTRY` for `--algorithm`, and who named it.

The user may name code to import, on a command line or in a program. The files of a run may not:
they can come from anybody, and `python -m` imports modules from the working directory, so also from
a folder of results in it.
"""

from collections.abc import Mapping
from typing import Any

from tff_ssl.errors import ConfigurationError

FLAGS = ("algorithm", "algorithms", "encoder", "encoders")  # Flags whose values may name code.
_by_user: set[str] = set()
_in_files: set[str] = set()


def of_flags(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """The values, as lists, of those flags that name code; `keras:NAME` does not."""
    found = {}
    for flag in FLAGS:
        value = values.get(flag) or ()
        words = [value] if isinstance(value, str) else list(value)
        if any(":" in word and not word.startswith("keras:") for word in words):
            found[flag] = words
    return found


def add_by_user(values: Mapping[str, Any]) -> None:
    """Lets the code stand that flags of the command line name, even if files name it, too."""
    _by_user.update(*of_flags(values).values())


def add_in_file(values: Mapping[str, Any]) -> None:
    """Notes the code that flags in a file name, which only the user can let stand."""
    _in_files.update(*of_flags(values).values())


def check(flag: str, name: str) -> None:
    """Raises a ConfigurationError if only a file has the name, and not the user."""
    if name in _in_files - _by_user:
        raise ConfigurationError(
            f"a file of the run names code, which is imported and run only if you name it too: "
            f"add --{flag}={name} if you trust it"
        )
