"""Runs a script: quiet logs, one line for a mistake of the user, and a clean end."""

import atexit
import faulthandler
import io
import os
import pathlib
import re
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

# Set before TensorFlow is imported: its messages about CUDA would precede a run's output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow would take all of a GPU's memory at once, also that of other processes.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

from absl import flags, logging

from launch.options import command_line, help_text, presets, resuming, settings
from launch.outputs import commands, run_folder
from tff_ssl import errors
from tff_ssl.runtime import REQUIRE_PRIVATE_WORKER, temporary_folder

# A warning about how TFF implements its quantized sums.
_IGNORED_WARNING = "can temporarily allocate extra memory"
_INTERRUPT_DELAY = 0.1  # Seconds before an interrupt that was lost is repeated.
_ADDRESS_SPACE = 4 * 2**30  # Bytes.
INTERRUPTED = 130  # Exit code of a program that Ctrl-C ends, as shells give it.
_was_interrupted = threading.Event()


class Script(NamedTuple):
    """A script."""

    name: str  # Name, such as `pretrain`.
    main: Callable[[Any], None]  # Function that takes the configuration.
    config: type[settings.Settings]  # Class of the configuration, whose fields are the flags.
    # (Value of the flag that chooses, name of the data set, whether the run starts from pretrained
    # weights) -> the default preset, whose flags hold unless they are given or `--flagfile` names
    # other presets; or None.
    default_preset: Callable[[str, str, bool], pathlib.Path | None] | None = None
    chosen_by: str = "algorithm"  # Name of the flag that chooses the default preset.
    # Whether its runs can be resumed: with `--resume`, flags that are not given have the values of
    # the run.
    resumes: bool = False


def run(script: Script) -> None:
    """Reads the flags and runs a script; the exit code is 0 only if the script succeeds."""
    # Registered first, so that the functions that remove files run before it.
    atexit.register(_end_if_interrupted)
    _prepare_output()  # Before the choice of a preset, which may import TFF.
    has_preset = presets.NONE not in sys.argv
    argv = [argument for argument in sys.argv if argument != presets.NONE]
    before: dict[str, Any] = {}
    try:
        presets.check(argv)
        before = resuming.find(argv, script.name) if script.resumes else {}
    except errors.ConfigurationError as error:
        sys.exit(f"error: {error}")
    has_preset = has_preset and not before and not presets.given(argv, "flagfile")
    if script.default_preset and has_preset:
        defaults = settings.settings(script.config, script.name)
        dataset, chosen = (
            (presets.given(argv, name) or [defaults[name].default])[-1]
            for name in ("dataset", script.chosen_by)
        )
        pretrained = bool(presets.given(argv, "init_from"))
        preset = script.default_preset(chosen, dataset, pretrained)
        argv[1:1] = [f"--flagfile={preset}"] if preset else []
    wants_help = help_text.is_wanted(argv)
    if wants_help:
        argv = help_text.without_request(argv)
    # What `absl.app.run` would do. If TensorFlow is imported while that runs, callbacks of its test
    # helpers are called at once and make the context before it is eager. Keras's functional models
    # then fail, and `tf.init_scope` leads to a graph.
    logging.use_absl_handler()
    if sys.__stderr__ is not None:  # It is closed by `2>&-`.
        faulthandler.enable(sys.__stderr__)
    config, rest = _parse_flags(argv, script, before)
    if rest:
        sys.exit(f"error: unexpected argument {rest[0]!r}; settings are given as --flag=value")

    def main() -> None:
        if wants_help:
            print(help_text.text(argv, config))
            return
        values = settings.flat(config)
        files = [presets.shown(path) for path in presets.files(argv)]
        if files and not values.get("list"):
            print(f"preset: {', '.join(map(str, files))}", flush=True)
        if not values.get("list") and not values.get("run"):  # Others write in the run's folder.
            run_folder.check_place(pathlib.Path(values.get("output_dir") or "."))
        if values.get("require_private_worker"):
            os.environ[REQUIRE_PRIVATE_WORKER] = "1"
        script.main(config)

    _guarded(main, argv)


def _prepare_output() -> None:
    """Silences warnings of other packages that a user can do nothing about.

    Characters that the terminal's encoding lacks, or a file name cannot have, are printed as "?".
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.filterwarnings("ignore", module="google")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    # `datasets.image_file` already rejects smaller images than those that Pillow warns of.
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")


def _end_if_interrupted() -> None:
    """Ends an interrupted program before libraries' destructors run.

    An interrupt cuts off calls to TFF's worker, after which gRPC's destructors sometimes abort
    ("Check failed: !inspect->seen_inactive").
    """
    if _was_interrupted.is_set():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


def _parse_flags(
    argv: Sequence[str], script: Script, before: Mapping[str, Any]
) -> tuple[settings.Settings, list[str]]:
    """The configuration, and the arguments that are no flags; exits with 2 on a mistake."""
    try:
        return command_line.parse(script.config, script.name, argv, before)
    except (flags.Error, UnicodeDecodeError, errors.ConfigurationError) as error:
        # What absl says of `--resume=maybe` is a tuple of Python.
        text = re.sub(r"\('Non-boolean.*'\)", "must be true or false", " ".join(str(error).split()))
        message = presets.explain(text, argv)
        print(f"error: {message} (--help lists the flags)", file=sys.stderr)
        sys.exit(2)


def _guarded(main: Callable[[], None], argv: Sequence[str]) -> None:
    """Runs `main`; a user's mistake ends it with a one-line error message."""
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().addFilter(lambda record: _IGNORED_WARNING not in record.getMessage())
    sys.unraisablehook = _on_lost_exception
    # These signals act like Ctrl-C, so that a run saves its state first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup sets SIG_IGN.
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        _check_python()
        folder = temporary_folder.use()
        if os.path.expanduser("~") == "~":  # Keras would make a folder of that name here.
            os.environ.setdefault("KERAS_HOME", str(folder))
        main()
    except KeyboardInterrupt:
        _was_interrupted.set()
        for command in run_folder.commands_to_resume():
            print(f"{commands.CONTINUE}{command}", flush=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # The reader of the output, such as `head`, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MemoryError:
        sys.exit("error: out of memory: smaller images, batches or models, or fewer clients help")
    except _mistakes() as error:
        if isinstance(error, OSError | errors.TrainingError | errors.WorkerLostError):
            for folder in run_folder.moved():
                sys.exit(
                    f"error: {folder} was moved or deleted while the run wrote in it: move it "
                    "back, if it still exists, and continue it with --resume"
                )
        message = presets.explain(" ".join(str(error).split()), argv)
        sys.exit(f"error: {message}{_remedy(error)}")


def _remedy(error: BaseException) -> str:
    """The command that adds a missing extra; an empty text for other errors."""
    if not isinstance(error, errors.MissingExtraError):
        return ""
    return f"; add it with: {commands.with_extra(error.extra)}"


def _check_python() -> None:
    """Ends the script if TensorFlow would abort, or fail for want of docstrings (`python -OO`).

    TensorFlow and TFF's worker reserve much more than they use, so that `ulimit -v` must be far
    above the memory they need.
    """
    if sys.flags.optimize > 1:
        sys.exit(
            "error: PYTHONOPTIMIZE=2, or python -OO, removes docstrings that TensorFlow needs: "
            "unset it, or set PYTHONOPTIMIZE=1"
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE:
        sys.exit(
            f"error: ulimit -v is {limit // 1024}, and TensorFlow needs {_ADDRESS_SPACE // 1024} "
            "or more: set ulimit -v unlimited"
        )


def _on_lost_exception(lost) -> None:
    """Repeats an interrupt that Python ignored, and prints other ignored exceptions.

    Python ignores exceptions in callbacks of the garbage collector, such as that of JAX, which TFF
    imports. The signal goes to the main thread: if another one received it, a call that waits in
    the main thread, such as `time.sleep`, would continue.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        again = [threading.main_thread().ident, signal.SIGTERM]
        threading.Timer(_INTERRUPT_DELAY, signal.pthread_kill, again).start()
    else:
        sys.__unraisablehook__(lost)


def _mistakes() -> tuple[type[Exception], ...]:
    """Types of exceptions whose message is meant for the user.

    TensorFlow's exceptions for a full or read-only disk are not OSErrors.
    """
    from datasets.errors import DatasetError

    known = (DatasetError, OSError, errors.ConfigurationError, errors.TrainingError,
             errors.WorkerLostError, errors.ClientTimeoutError)  # fmt: skip
    if "tensorflow" not in sys.modules:
        return known
    from tensorflow import errors as of_tensorflow

    return (*known, of_tensorflow.ResourceExhaustedError, of_tensorflow.PermissionDeniedError)
