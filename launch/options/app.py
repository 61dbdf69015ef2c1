"""What all scripts share: quiet logs, one line for a mistake, and a clean end."""

import atexit
import os
import pathlib
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence

# Before TensorFlow is imported: its chatter about CUDA would stand above a run's own words.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags, logging

# Of TFF's own quantized and secure sums, about how they are made.
_CHATTER = ("can temporarily allocate extra memory", "Object was never used")
_AGAIN_SECONDS = 0.1
INTERRUPTED = 130  # The shell's code for a program ended by Ctrl-C.


def run(main: Callable[[], None], digits_preset: Callable[[str], str] | None = None) -> None:
    """Parses the flags and runs `main`; the exit code is 0 only if all went well.

    Args:
      main: The script.
      digits_preset: The --algorithm, or "" -> a file of `launch/presets`, whose flags hold on the
        digits (the default data set) unless given anew. Other data sets have presets that the user
        names by --flagfile.
    """
    atexit.register(_end_quietly)
    argv = list(sys.argv)
    if digits_preset and _on_digits(argv):
        name = digits_preset((_given(argv, "algorithm") or [""])[-1])
        preset = pathlib.Path(__file__).parent.parent / "presets" / f"{name}.flags"
        argv.insert(1, f"--flagfile={preset}")
    app.run(lambda rest: _guarded(main, rest), argv, flags_parser=_parse_flags)


def _end_quietly() -> None:
    """Takes away TFF's default context, which complains when it is collected at the exit."""
    if "tensorflow_federated" in sys.modules:
        from tff_ssl.runtime import local_worker  # noqa: F401


def _on_digits(argv: Sequence[str]) -> bool:
    """Whether the flags name no other data set and no preset."""
    named = _given(argv, "dataset")
    return not _given(argv, "flagfile") and (not named or named[-1] == "digits")


def _given(argv: Sequence[str], flag: str) -> list[str]:
    """The values that a flag is given, before flags are parsed."""
    return re.findall(rf"^--?{flag}[=\n](.*)$", "\n".join(argv), re.MULTILINE)


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
    logging.get_absl_handler().addFilter(_is_ours)
    warnings.filterwarnings("ignore", module="google")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    sys.unraisablehook = _on_lost_exception
    # Like Ctrl-C, so that a run that is told to end saves its state first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # As it is under nohup.
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `| head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except _mistakes() as error:
        sys.exit(f"error: {' '.join(str(error).split())}")


def _on_lost_exception(lost) -> None:
    """Sends an interrupt again that came where Python ignores exceptions, and shows all others.

    Such a place is a callback of the garbage collector, of which JAX, which TFF imports, has one.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(_AGAIN_SECONDS, signal.raise_signal, [signal.SIGTERM]).start()
    else:
        sys.__unraisablehook__(lost)


def _is_ours(record) -> bool:
    return not any(text in record.getMessage() for text in _CHATTER)


def _mistakes() -> tuple[type[Exception], ...]:
    """The exceptions whose message is meant for the user."""
    from datasets.errors import DatasetError
    from tff_ssl import errors

    ours = (DatasetError, OSError, errors.ConfigurationError, errors.TrainingError,
            errors.WorkerLostError, errors.ClientTimeoutError)  # fmt: skip
    return (*ours, *_disk_errors())


def _disk_errors() -> tuple[type[Exception], ...]:
    """What TensorFlow raises where Python raises an OSError: disk full, or read-only."""
    if "tensorflow" not in sys.modules:
        return ()
    from tensorflow import errors

    return errors.ResourceExhaustedError, errors.PermissionDeniedError
