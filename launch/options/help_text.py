"""The help texts of the scripts: flags by topic, with their current defaults."""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from launch.options import defaults, presets, settings
from launch.options.run_config import RunConfig
from launch.options.settings import Setting, Settings
from launch.outputs import commands

_WANTED = re.compile(r"--?(help|helpfull|helpshort|h|\?)(=(true|1|yes|y|t))?", re.IGNORECASE)
_LARGEST_WIDTH = 100


def is_wanted(argv: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return any(_WANTED.fullmatch(argument) for argument in argv[1:])


def without_request(argv: Sequence[str]) -> list[str]:
    """The command line without the flags that ask for help."""
    return [argument for argument in argv if not _WANTED.fullmatch(argument)]


def text(argv: Sequence[str], config: Settings) -> str:
    """The help text of a script; `argv` has its default preset, and no request for help."""
    values, known = settings.flat(config), defaults.shown(config)
    width = min(shutil.get_terminal_size().columns, _LARGEST_WIDTH)
    main = sys.modules["__main__"]
    name = main.__spec__.name if main.__spec__ else argv[0]
    about = commands.in_text((main.__doc__ or "").strip())
    lines = [f"{commands.module(name)} [--flag=value ...]", "", about, ""]
    which = _which_defaults(argv, config)
    if which:
        lines += [*textwrap.wrap(which, width), ""]
    sources = {name.split("=")[0]: path for name, path in presets.set_by(argv).items()}
    for topic, of_topic in topics(config).items():
        lines.append(topic)
        for setting in of_topic:
            name, value, explanation = setting.name, values[setting.name], setting.help
            texts = value if setting.repeated and value else [known.get(name, _shown(value))]
            lines.append("  " + " ".join(f"--{name}={text}" for text in texts))
            if setting.choices:
                explanation = f"<{'|'.join(setting.choices)}>: {explanation}"
            if name in config.given and value != setting.default:
                of_preset = name in sources and not presets.given(argv, name)
                by = f"set in {sources[name]}" if of_preset else "given"
                explanation += f" [{by}; {_shown(setting.default)} otherwise]"
            indent = " " * 6
            lines += textwrap.wrap(
                explanation, width, initial_indent=indent, subsequent_indent=indent
            )
        lines.append("")
    return "\n".join(lines)


def _which_defaults(argv: Sequence[str], config: Settings) -> str:
    """A sentence on the flags and presets for which the shown values hold; empty if none."""
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


def topics(config: Settings) -> dict[str, list[Setting]]:
    """The script's flags by topic, first those of this script alone."""
    left = settings.settings(type(config), config.script)
    found: dict[str, list[Setting]] = {"This script": []}
    for field in settings.own_fields(RunConfig):
        names = settings.settings(type(field.default))
        topic = str(field.default.__doc__).partition(".")[0]
        found[topic] = [left.pop(name) for name in names if name in left]
    found["This script"] = list(left.values())
    return {topic: of_topic for topic, of_topic in found.items() if of_topic}


def _shown(value: Any) -> str:
    """A flag's value as text; `(none)` for flags without one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "(none)"
    return "(none)" if value is None else str(value)
