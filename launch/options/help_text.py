"""The help texts of the scripts: flags by topic, with the defaults that hold."""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from absl import flags

from launch.options import defaults, presets, settings
from launch.options.command_line import Parsed
from launch.options.run_config import RunConfig
from launch.options.settings import Settings
from launch.outputs import commands

_WANTED = re.compile(r"--?(help|helpfull|helpshort|h|\?)(=(true|1|yes|y|t))?", re.IGNORECASE)
_LARGEST_WIDTH = 100
_REPEAT = ";\n    repeat this option to specify a list of values"  # absl adds it.


def is_wanted(argv: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return any(_WANTED.fullmatch(argument) for argument in argv[1:])


def without_request(argv: Sequence[str]) -> list[str]:
    """The command line without the flags that ask for help."""
    return [argument for argument in argv if not _WANTED.fullmatch(argument)]


def text(argv: Sequence[str], parsed: Parsed) -> str:
    """The help text of the running script.

    Args:
      argv: The command line without the request for help, with the default preset.
      parsed: What is read from it.
    """
    config, values = parsed.config, parsed.values
    width = min(shutil.get_terminal_size().columns, _LARGEST_WIDTH)
    main = sys.modules["__main__"]
    name = main.__spec__.name if main.__spec__ else argv[0]
    about = commands.in_text((main.__doc__ or "").strip())
    lines = [f"{commands.module(name)} [--flag=value ...]", "", about, ""]
    which = _which_defaults(argv, config)
    if which:
        lines += [*textwrap.wrap(which, width), ""]
    sources = {flag.name.split("=")[0]: str(flag.path) for flag in presets.set_by(argv)}
    given = {name for name in config.given if name not in sources or presets.given(argv, name)}
    known = defaults.shown(config)
    for topic, names in topics(config).items():
        lines.append(topic)
        for flag in (values[name] for name in names):
            origin = "given" if flag.name in given else sources.get(flag.name)
            lines.append(f"  {_value(flag, known)}")
            lines += textwrap.wrap(
                _explanation(flag, origin), width, initial_indent=" " * 6, subsequent_indent=" " * 6
            )
        lines.append("")
    return "\n".join(lines)


def _explanation(flag: flags.Flag, origin: str | None) -> str:
    """The help of a flag, and where its value comes from if it is not the default.

    Args:
      flag: The flag.
      origin: "given", or the path of a preset; None for the default.
    """
    explanation = flag.help.removesuffix(_REPEAT)
    if origin is None or flag.value == flag.default:
        return explanation
    by = "given" if origin == "given" else f"set in {origin}"
    return f"{explanation} [{by}; {_shown(flag.default)} otherwise]"


def _which_defaults(argv: Sequence[str], config: Settings) -> str:
    """A sentence on the flags and presets for which the shown values hold; empty without any."""
    values = settings.flat(config)
    chosen = [
        f"--{name}={values[name]}"
        for name in ("dataset", "algorithm", "objective")
        if name in settings.settings(type(config), config.script) and values[name]
    ]
    files = ", ".join(str(presets.shown(path)) for path in presets.files(argv))
    if not chosen and not files:
        return ""
    where = f" for {' '.join(chosen)}" if chosen else ""
    return f"The values below hold{where}{f', with the preset {files}' if files else ''}."


def topics(config: Settings) -> dict[str, list[str]]:
    """Names of the script's flags by topic, first those that belong to this script alone."""
    own = list(settings.settings(type(config), config.script))
    found: dict[str, list[str]] = {}
    for field in settings.own_fields(RunConfig):
        of_run = settings.settings(type(field.default))
        found[str(field.default.__doc__).partition(".")[0]] = [n for n in of_run if n in own]
    in_topics = {name for names in found.values() for name in names}
    ordered = {"This script": [name for name in own if name not in in_topics]} | found
    return {topic: names for topic, names in ordered.items() if names}


def _value(flag: flags.Flag, known: dict[str, str]) -> str:
    """The flag with its value, as it would be written on the command line."""
    if isinstance(flag, flags.MultiFlag) and flag.value:
        return " ".join(f"--{flag.name}={value}" for value in flag.value)
    if flag.name in known:
        return f"--{flag.name}={known[flag.name]}"
    if flag.boolean:
        return f"--{'' if flag.value else 'no'}{flag.name}"
    return f"--{flag.name}={_shown(flag.value)}"


def _shown(value: Any) -> str:
    """A flag's value as text; `(none)` for flags without one."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "(none)"
    return "(none)" if value is None else str(value)
