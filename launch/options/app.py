"""The frame of all scripts: quiet logs, one line for a mistake, and a clean end."""

import atexit
import os
import pathlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence

# Before TensorFlow is imported: its messages about CUDA would precede a run's output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags, logging

from launch.options import presets

# Warnings about how TFF implements its quantized and secure sums.
_CHATTER = ("can temporarily allocate extra memory", "Object was never used")
_AGAIN_SECONDS = 0.1
INTERRUPTED = 130  # The shell's code for a program ended by Ctrl-C.


def run(
    main: Callable[[], None], digits_preset: Callable[[str], pathlib.Path | None] | None = None
) -> None:
    """Parses the flags and runs `main`; the exit code is 0 only if all went well.

    Args:
      main: The script.
      digits_preset: Value of `--algorithm`, or "" if it is not given -> the preset whose flags hold
        on the digits (the default data set) unless they are given on the command line. Presets of
        other data sets are named by `--flagfile`.
    """
    atexit.register(_end_quietly)
    argv = list(sys.argv)
    if digits_preset and _on_digits(argv):
        preset = digits_preset((presets.given(argv, "algorithm") or [""])[-1])
        if preset:
            argv.insert(1, f"--flagfile={preset}")
    app.run(lambda rest: _guarded(main, rest, argv), argv, flags_parser=_parse_flags)


def _end_quietly() -> None:
    """Removes TFF's default context, which prints an error when it is collected at the exit."""
    if "tensorflow_federated" in sys.modules:
        from tff_ssl.runtime import local_worker  # noqa: F401


def _on_digits(argv: Sequence[str]) -> bool:
    """Whether the flags name no other data set and no preset."""
    named = presets.given(argv, "dataset")
    return not presets.given(argv, "flagfile") and (not named or named[-1] == "digits")


def _parse_flags(argv: Sequence[str]) -> Sequence[str]:
    renamed = presets.missing(argv)
    if renamed:
        sys.exit(f"error: {renamed}")
    try:
        return flags.FLAGS(argv)
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
    """Runs the script; ends with one line for a mistake of the user.

    Args:
      main: The script.
      rest: Arguments that are no flags, after the name of the script.
      argv: The whole command line, with the default preset.
    """
    if rest[1:]:
        sys.exit(f"error: unexpected argument {rest[1]!r}; settings are given as --flag=value")
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().addFilter(_is_ours)
    warnings.filterwarnings("ignore", module="google")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    sys.unraisablehook = _on_lost_exception
    # Like Ctrl-C, so that a run that is told to end saves its state first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # As it is under nohup.
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    _print_presets(argv)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `| head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except _mistakes() as error:
        sys.exit(f"error: {presets.explain(' '.join(str(error).split()), argv)}")


def _on_lost_exception(lost) -> None:
    """Repeats an interrupt that came where Python ignores exceptions, and shows other exceptions.

    Python ignores exceptions in callbacks of the garbage collector, such as the one of JAX, which
    TFF imports.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(_AGAIN_SECONDS, signal.raise_signal, [signal.SIGTERM]).start()
    else:
        sys.__unraisablehook__(lost)


def _is_ours(record) -> bool:
    return not any(text in record.getMessage() for text in _CHATTER)


def _mistakes() -> tuple[type[Exception], ...]:
    """Types of exceptions whose message is meant for the user."""
    from datasets.errors import DatasetError
    from tff_ssl import errors

    ours = (DatasetError, OSError, errors.ConfigurationError, errors.TrainingError,
            errors.WorkerLostError, errors.ClientTimeoutError)  # fmt: skip
    return (*ours, *_disk_errors())


def _disk_errors() -> tuple[type[Exception], ...]:
    """Types of TensorFlow's exceptions where Python raises an OSError: disk full, or read-only."""
    if "tensorflow" not in sys.modules:
        return ()
    from tensorflow import errors

    return errors.ResourceExhaustedError, errors.PermissionDeniedError
