"""What can go wrong in a way that a user can do something about; each message is one line."""


class ConfigurationError(ValueError):
    """A setting that cannot work; the message names the flag and what would do."""


class TrainingError(RuntimeError):
    """Training cannot go on."""


class WorkerLostError(RuntimeError):
    """The worker process ended in the middle of a computation."""


class ClientFailedError(RuntimeError):
    """A client's computation failed on a node; the message is what it said first."""


class ClientTimeoutError(RuntimeError):
    """A computation took longer than it may."""
