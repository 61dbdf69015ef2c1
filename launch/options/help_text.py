"""The help texts of the scripts: flags by topic, with the defaults that hold."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from launch.options import defaults, presets, topics
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


def text(argv: Sequence[str], args: flags.FlagValues) -> str:
    """The help text of the running script.

    Args:
      argv: The command line without the request for help, with the default preset.
      args: The flags, parsed from the command line.
    """
    width = min(shutil.get_terminal_size().columns, _LARGEST_WIDTH)
    main = sys.modules["__main__"]
    name = main.__spec__.name if main.__spec__ else argv[0]
    about = commands.in_text((main.__doc__ or "").strip())
    lines = [f"{commands.module(name)} [--flag=value ...]", "", about, ""]
    which = _which_defaults(argv, args)
    if which:
        lines += [*textwrap.wrap(which, width), ""]
    sources = {flag.name.split("=")[0]: str(flag.path) for flag in presets.set_by(argv)}
    given = {
        name
        for name in args
        if args[name].present and (name not in sources or presets.given(argv, name))
    }
    known = defaults.of_data(args)
    for topic, group in _by_topic(args):
        lines.append(topic)
        for flag in group:
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


def _which_defaults(argv: Sequence[str], args: flags.FlagValues) -> str:
    """A sentence on the flags and presets for which the shown values hold; empty without any."""
    chosen = [
        f"--{name}={args[name].value}"
        for name in ("dataset", "algorithm", "objective")
        if name in args and args[name].value
    ]
    files = ", ".join(str(presets.shown(path)) for path in presets.files(argv))
    if not chosen and not files:
        return ""
    where = f" for {' '.join(chosen)}" if chosen else ""
    return f"The values below hold{where}{f', with the preset {files}' if files else ''}."


def _by_topic(args: flags.FlagValues) -> Iterator[tuple[str, list[flags.Flag]]]:
    """The script's flags by topic, first those that belong to this script alone."""
    ours = {
        flag.name: flag
        for module, group in args.flags_by_module_dict().items()
        if module.startswith("launch") or module == sys.argv[0]
        for flag in group
    }
    in_topics = {name for names in topics.TOPICS.values() for name in names}
    own = [flag for name, flag in ours.items() if name not in in_topics]
    if own:
        yield "This script", own
    for topic, names in topics.TOPICS.items():
        group = [ours[name] for name in names if name in ours]
        if group:
            yield topic, group


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
