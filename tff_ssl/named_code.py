"""Code that a text names, such as `package.module:ENTRY` for `--algorithm`, and who named it.

The user may name code to import, on a command line or in a program. The files of a run may not:
they can come from anybody, and `python -m` imports modules from the working directory, so also from
a folder of results in it.
"""

from collections.abc import Iterable

from tff_ssl.errors import ConfigurationError

_by_user: set[str] = set()
_in_files: set[str] = set()


def add_by_user(names: Iterable[str]) -> None:
    """Lets names that the command line gives stand for code, even if files have them too."""
    _by_user.update(names)


def add_in_file(names: Iterable[str]) -> None:
    """Notes names that files have, and which do not stand for code unless the user names them."""
    _in_files.update(names)


def check(flag: str, name: str) -> None:
    """Raises a ConfigurationError if only a file has the name, and not the user."""
    if name in _in_files - _by_user:
        raise ConfigurationError(
            f"a file of the run names code, which is imported and run only if you name it too: "
            f"add --{flag}={name} if you trust it"
        )
