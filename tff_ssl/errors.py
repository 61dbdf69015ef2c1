"""Errors that a user can act on; each message is one line."""

import contextlib
from collections.abc import Iterator


class ConfigurationError(ValueError):
    """A setting is impossible; the message names the flag and the possible values."""


class MissingExtraError(ConfigurationError):
    """An extra of the package is not installed.

    Attributes:
      extra: Name of the extra in `pyproject.toml`.
    """

    def __init__(self, what: str, extra: str, reason: ImportError | None = None) -> None:
        super().__init__(f"{what} needs the extra `{extra}`{f' ({reason})' if reason else ''}")
        self.extra = extra


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Raises a ValueError of its block as a ConfigurationError that begins with `what`, a flag."""
    try:
        yield
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from error


class TrainingError(RuntimeError):
    """Training cannot continue."""


class OutOfMemoryError(TrainingError):
    """A computation needs more memory than its device has."""


class WorkerLostError(RuntimeError):
    """The worker process ended in the middle of a computation."""


class ClientFailedError(RuntimeError):
    """A client's computation failed on a node; the message is the first line of its error."""


class ClientTimeoutError(RuntimeError):
    """A computation exceeded its time limit."""
