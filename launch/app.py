"""What all scripts share: quiet logs, one line for a mistake, and a clean end."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence

# Before TensorFlow is imported: its chatter about CUDA would stand above a run's own words.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags, logging  # noqa: E402

INTERRUPTED = 130  # The shell's code for a program ended by Ctrl-C.


def run(main: Callable[[], None]) -> None:
    """Parses the flags and runs `main`; the exit code is 0 only if all went well."""
    app.run(lambda argv: _guarded(main, argv), flags_parser=_parse_flags)


def _parse_flags(argv: Sequence[str]) -> Sequence[str]:
    try:
        return flags.FLAGS(argv)
    except (flags.Error, UnicodeDecodeError) as error:
        print(f"error: {' '.join(str(error).split())} (--help lists the flags)", file=sys.stderr)
        sys.exit(2)


def _guarded(main: Callable[[], None], argv: Sequence[str]) -> None:
    if argv[1:]:
        sys.exit(f"error: unexpected argument {argv[1]!r}; settings are given as --flag=value")
    logging.set_verbosity(logging.WARNING)
    warnings.filterwarnings("ignore", module="google")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    # Like Ctrl-C, so that a run that is told to end saves its state first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `| head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except _mistakes() as error:
        sys.exit(f"error: {' '.join(str(error).split())}")


def _mistakes() -> tuple[type[Exception], ...]:
    """The exceptions whose message is meant for the user."""
    from datasets.errors import DatasetError
    from tff_ssl.errors import ConfigurationError, TrainingError, WorkerLostError

    return DatasetError, ConfigurationError, TrainingError, WorkerLostError, OSError
