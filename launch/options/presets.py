"""Presets: flag files that set what the command line does not."""

import pathlib
import re
from collections.abc import Iterator, Sequence

from absl import flags

from datasets import catalog
from launch.options import known_names
from tff_ssl.errors import ConfigurationError

FOLDER = pathlib.Path(__file__).parent.parent / "presets"
_DIGITS = FOLDER / "digits"
NONE = "--flagfile="  # Flag of a command that has no preset, not even the default one.
_CASE_FOLDER = FOLDER / "case_folder"
_ROOT = FOLDER.parent.parent


def of_algorithm(
    name: str, dataset: str = "digits", pretrained: bool = False
) -> pathlib.Path | None:
    """The default preset of an algorithm on a data set; None if there is none.

    On the digits it is the first that exists of `digits/NAME.flags` and, by the algorithm's kind
    and default objective, `digits/kinds/KIND_OBJECTIVE.flags` and `digits/kinds/KIND.flags`. The
    latter two set no hyperparameters, so that the algorithm's defaults hold. On images of your own
    it is `case_folder/NAME.flags`, or `case_folder/pretrained_NAME.flags`, if that exists, for a
    run from pretrained weights. On CIFAR-10 it is `cifar10/NAME.flags`.
    """
    if dataset != "digits":
        if not catalog.is_own(dataset) and dataset != "cifar10":
            return None
        folder = _CASE_FOLDER if catalog.is_own(dataset) else FOLDER / dataset
        return _first(folder, *[f"pretrained_{name}"] * pretrained, name)
    # A name that is nearly a right one is refused when the flags are read.
    if (path := _first(_DIGITS, name)) or known_names.nearest("algorithm", name):
        return path
    # Imported here, because it takes seconds and most algorithms have a preset of their own.
    from tff_ssl.algorithms import registry

    try:
        algorithm = registry.find(name, None)
    except ConfigurationError:  # It is raised again when the run is built.
        return None
    kind = algorithm.kind.kind
    return _first(_DIGITS / "kinds", f"{kind}_{algorithm.objectives[0]}", kind)


def _first(folder: pathlib.Path, *names: str) -> pathlib.Path | None:
    """The first preset of a folder that exists."""
    paths = [folder / f"{name}.flags" for name in names]
    return next((path for path in paths if path.exists()), None)


def of_objective(
    name: str, dataset: str = "digits", pretrained: bool = False
) -> pathlib.Path | None:
    """The default preset of the centralized baseline with an objective; None if there is none.

    On the digits it is `digits/centralized_NAME.flags` if that exists, otherwise
    `digits/centralized.flags`. On images of your own, cco has `case_folder/centralized.flags`, or
    `case_folder/pretrained_centralized.flags` for a run from pretrained weights.
    """
    if dataset != "digits":
        is_known = catalog.is_own(dataset) and name == "cco"
        file = "pretrained_centralized.flags" if pretrained else "centralized.flags"
        return _CASE_FOLDER / file if is_known else None
    return _first(_DIGITS, f"centralized_{name}", "centralized")


def shown(path: pathlib.Path) -> pathlib.Path:
    """The path for messages: relative to the project's root if it is inside."""
    resolved = path.resolve()
    return resolved.relative_to(_ROOT) if resolved.is_relative_to(_ROOT) else path


def given(argv: Sequence[str], flag: str) -> list[str]:
    """The values that an unparsed command line gives to a flag."""
    return re.findall(rf"^--?{flag}[=\n](.*)$", "\n".join([*argv, ""]), re.MULTILINE)


def files(argv: Sequence[str]) -> list[pathlib.Path]:
    """The presets that a command line names, in order."""
    return [pathlib.Path(text).expanduser() for text in given(argv, "flagfile")]


def check(argv: Sequence[str]) -> None:
    """Raises `ConfigurationError` for a preset that cannot be read, or that includes itself."""
    for preset in files(argv):
        for _ in _read(preset):
            pass


def expand(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line, with those of its presets in place of `--flagfile`."""
    return flags.FlagValues().read_flags_from_files(list(arguments))


def set_by(argv: Sequence[str]) -> dict[str, pathlib.Path]:
    """The last preset that sets a flag, as `shown`, by the flag's name or `hparam=NAME`."""
    return {name: shown(path) for preset in files(argv) for name, path in _read(preset)}


def explain(message: str, argv: Sequence[str]) -> str:
    """Adds to an error message the presets that set the flags it names."""
    lines = set_by(argv)
    names = re.findall(r"--(hparam=\w+|\w+)|flag '(\w+)'", message)
    sources = []
    for name in dict.fromkeys(first or second for first, second in names):
        on_command_line = given(argv, name.replace("hparam=", "hparam[=\n]"))
        if name in lines and not on_command_line:
            sources.append(f"--{name} is set in {lines[name]}")
    return f"{message} ({'; '.join(sources)})" if sources else message


def _read(
    path: pathlib.Path, inside: Sequence[pathlib.Path] = ()
) -> Iterator[tuple[str, pathlib.Path]]:
    """The flags of a preset and of the presets it includes, in order, with their files."""
    if path in inside:
        raise ConfigurationError(f"--flagfile={path} includes itself: remove that line")
    try:
        if path.is_char_device() or path.is_block_device():
            raise ValueError("it is a device")
        # A pipe, such as of `--flagfile=<(...)`, can be read once, and absl reads it.
        text = "" if path.is_fifo() else path.read_text(encoding="utf-8")
        if "\0" in text:
            raise ValueError("it has a zero byte")
    except ValueError as error:
        raise ConfigurationError(f"--flagfile={path} is no text file in UTF-8 ({error})") from error
    except OSError as error:
        raise ConfigurationError(f"--flagfile={path} cannot be read: {error.strerror}") from error
    if text.startswith("\ufeff"):
        raise ConfigurationError(
            f"--flagfile={path} begins with a byte order mark: save it as UTF-8 without one"
        )
    for line in map(str.strip, text.splitlines()):
        name, _, value = line.lstrip("-").partition("=")
        if line.startswith("-") and name == "flagfile":
            yield from _read(pathlib.Path(value).expanduser(), (*inside, path))
        elif line.startswith("-"):
            yield f"hparam={value.partition('=')[0]}" if name == "hparam" else name, path
