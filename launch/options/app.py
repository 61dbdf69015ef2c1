"""Runs a script: quiet logs, one line for a mistake of the user, and a clean end."""

import atexit
import os
import pathlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence

# Set before TensorFlow is imported, because its messages about CUDA would precede a run's output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags, logging

from launch.options import numbers, presets

# Warnings about how TFF implements its quantized and secure sums.
_IGNORED_WARNINGS = ("can temporarily allocate extra memory", "Object was never used")
_INTERRUPT_DELAY = 0.1  # Seconds before an interrupt that was lost is repeated.
INTERRUPTED = 130  # Exit code of a program that Ctrl-C ends, as shells give it.


def run(
    main: Callable[[], None],
    digits_preset: Callable[[str], pathlib.Path | None] | None = None,
    chosen_by: str = "algorithm",
) -> None:
    """Parses the flags and runs a script; the exit code is 0 only if the script succeeds.

    Args:
      main: The script.
      digits_preset: Value of the flag that chooses, or "" if it is not given -> the default preset
        on the digits, the default data set. Its flags hold unless they are given on the command
        line. Presets of other data sets are named by `--flagfile`.
      chosen_by: Name of the flag that chooses the default preset.
    """
    atexit.register(_end_quietly)
    argv = list(sys.argv)
    if digits_preset and _on_digits(argv):
        preset = digits_preset((presets.given(argv, chosen_by) or [""])[-1])
        if preset:
            argv.insert(1, f"--flagfile={preset}")
    app.run(lambda rest: _guarded(main, rest, argv), argv, flags_parser=_parse_flags)


def _end_quietly() -> None:
    """Removes TFF's default context, which prints an error when it is collected at the exit."""
    if "tensorflow_federated" in sys.modules:
        from tff_ssl.runtime import local_worker  # noqa: F401


def _on_digits(argv: Sequence[str]) -> bool:
    """Whether the flags name no other data set and no preset."""
    datasets = presets.given(argv, "dataset")
    return not presets.given(argv, "flagfile") and (not datasets or datasets[-1] == "digits")


def _parse_flags(argv: Sequence[str]) -> Sequence[str]:
    """Parses the command line and returns the arguments that are not flags."""
    renamed = presets.missing(argv)
    if renamed:
        sys.exit(f"error: {renamed}")
    try:
        rest = flags.FLAGS(argv)
        numbers.check(flags.FLAGS)
        return rest
    except (flags.Error, UnicodeDecodeError) as error:
        message = presets.explain(" ".join(str(error).split()), argv)
        print(f"error: {message} (--help lists the flags)", file=sys.stderr)
        sys.exit(2)


def _print_presets(argv: Sequence[str]) -> None:
    """Prints the presets in use, unless the script only lists what can be chosen."""
    files = [presets.shown(pathlib.Path(text)) for text in presets.given(argv, "flagfile")]
    if files and not getattr(flags.FLAGS, "list", False):
        print(f"preset: {', '.join(map(str, files))}", flush=True)


def _guarded(main: Callable[[], None], rest: Sequence[str], argv: Sequence[str]) -> None:
    """Runs the script; a mistake of the user ends it with an error message of one line.

    Args:
      main: The script.
      rest: Name of the script, and the arguments that are not flags.
      argv: Whole command line, including the default preset.
    """
    if rest[1:]:
        sys.exit(f"error: unexpected argument {rest[1]!r}; settings are given as --flag=value")
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().addFilter(_is_shown)
    warnings.filterwarnings("ignore", module="google")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    sys.unraisablehook = _on_lost_exception
    # These signals act like Ctrl-C, so that a run that they end saves its state first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup sets SIG_IGN.
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    _print_presets(argv)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # The reader of the output, such as `head`, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except _mistakes() as error:
        sys.exit(f"error: {presets.explain(' '.join(str(error).split()), argv)}")


def _on_lost_exception(lost) -> None:
    """Repeats an interrupt that Python ignored, and prints other ignored exceptions.

    Python ignores exceptions in callbacks of the garbage collector, such as the callback of JAX,
    which TFF imports.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(_INTERRUPT_DELAY, signal.raise_signal, [signal.SIGTERM]).start()
    else:
        sys.__unraisablehook__(lost)


def _is_shown(record) -> bool:
    """Whether a log record is none of the ignored warnings."""
    return not any(text in record.getMessage() for text in _IGNORED_WARNINGS)


def _mistakes() -> tuple[type[Exception], ...]:
    """Types of exceptions whose message is meant for the user."""
    from datasets.errors import DatasetError
    from tff_ssl import errors

    errors_of_project = (DatasetError, OSError, errors.ConfigurationError, errors.TrainingError,
            errors.WorkerLostError, errors.ClientTimeoutError)  # fmt: skip
    return (*errors_of_project, *_disk_errors())


def _disk_errors() -> tuple[type[Exception], ...]:
    """TensorFlow's types of exceptions for a full or read-only disk; they are no OSErrors."""
    if "tensorflow" not in sys.modules:
        return ()
    from tensorflow import errors

    return errors.ResourceExhaustedError, errors.PermissionDeniedError
