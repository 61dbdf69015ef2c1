"""Configurations of scripts: frozen dataclasses, whose fields are the flags of the script.

A field has the default and the bounds of its flag; the help text stands below `Attributes:` in the
class's docstring. A script's class gives its flags (`define`), the object with which it runs
(`build`), and the `config.json` of its runs (`to_json`). A field may be a section, a dataclass of
further flags; names of flags are unique.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from absl import flags

from launch.options import hyperparameters
from launch.options.hyperparameters import LARGEST_INTEGER
from tff_ssl.errors import ConfigurationError

# The scripts with all flags of federated runs.
FEDERATED = ("pretrain", "lower", "sweep", "stacks.flower")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What every configuration has."""

    script: str = ""  # Name of the script that has read the flags; empty if none.
    # Names of the flags that the command line or a preset gives.
    given: frozenset[str] = frozenset()


Config = TypeVar("Config", bound=Settings)


class Setting(NamedTuple):
    """A flag."""

    name: str
    section: str  # Name of the section that has it; empty for a field of the configuration itself.
    kind: type  # Type of its value, or of a list's items: bool, int, float or str.
    is_list: bool  # Whether its value is a tuple.
    default: Any
    help: str
    low: float | None = None  # Smallest number that it takes, also in a list.
    high: float | None = None  # Largest number that it takes.
    # Texts that it takes, if not all; a bool takes them beside true and false.
    choices: Sequence[str] = ()
    repeated: bool = False  # Whether a list is given by repeating the flag instead of with commas.
    instead_of: str = ""  # Flag in place of which it may be given; the last of the two counts.
    # Whether it is in `config.json`; other flags are of a command, not of a run.
    recorded: bool = True


def flag(default: Any, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """A field that is a flag, with attributes of a `Setting`; a `Literal` needs no `choices`.

    Further arguments are `scripts`, the ones that have the flag, if not all with the section do;
    `names`, a text for `{names}` in its help; and `in_script`, default, help text and perhaps
    choices by the name of a script in which they differ.
    """
    return dataclasses.field(default=default, metadata={"low": low, "high": high, **more})


def section(cls: type, *scripts: str) -> Any:
    """A field that is a section of flags, which these scripts have; all if none are named."""
    return dataclasses.field(default=cls(), metadata={"scripts": scripts})


def settings(cls: type, script: str | None = None) -> dict[str, Setting]:
    """The flags of a class and its sections by name, in order: a script's, or all if None."""
    found: dict[str, Setting] = {}
    hints, texts = typing.get_type_hints(cls), hyperparameters.descriptions(cls)
    unit = "steps" if script in ("centralized", "detect") else "rounds"
    for field in own_fields(cls):
        hint, declared = hints[field.name], dict(field.metadata)
        scripts, names = declared.pop("scripts", ()), declared.pop("names", "")
        if script is not None and scripts and script not in scripts:
            continue
        if dataclasses.is_dataclass(hint):
            inside = settings(hint, script)  # type: ignore[arg-type]
            found |= {name: one._replace(section=field.name) for name, one in inside.items()}
            continue
        if typing.get_origin(hint) is typing.Literal:
            hint, declared["choices"] = str, typing.get_args(hint)
        text = texts[field.name].replace("{names}", names).replace("{unit}", unit)
        default, text, *choices = declared.pop("in_script", {}).get(script, (field.default, text))
        if choices:
            declared["choices"] = choices[0]
        found[field.name] = Setting(field.name, "", *_kind(hint), default, text, **declared)
    return found


def own_fields(config: Any) -> list[dataclasses.Field]:
    """The flags and sections of a class or an object, inherited ones last."""
    cls = config if isinstance(config, type) else type(config)
    order = [name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())]
    ordered = sorted(dataclasses.fields(cls), key=lambda field: order.index(field.name))
    return [field for field in ordered if field.name not in ("script", "given")]


def _kind(hint: Any) -> tuple[type, bool]:
    """The type of a field's value, or of its items, without None; and whether it is a tuple."""
    if isinstance(hint, types.UnionType):
        # A bool that also takes choices is `bool | str`.
        hint, *_ = (part for part in typing.get_args(hint) if part is not types.NoneType)
    return (typing.get_args(hint)[0], True) if typing.get_origin(hint) is tuple else (hint, False)


def define(cls: type, script: str, values: flags.FlagValues) -> None:
    """Adds the flags of a class, as a script has them, to `values`."""
    for setting in settings(cls, script).values():
        name, default, text = setting.name, setting.default, setting.help
        bounds = {"lower_bound": setting.low, "upper_bound": setting.high}
        if setting.repeated:
            flags.DEFINE_multi_string(name, list(default), text, flag_values=values)
        elif setting.is_list:
            flags.DEFINE_flag(_ListFlag(setting, values), values)
            _bound_list(setting, values)
        elif setting.kind is bool and setting.choices:
            parser, serializer = _BoolOrChoiceParser(setting.choices), flags.ArgumentSerializer()
            flags.DEFINE(parser, name, default, text, values, serializer, boolean=True)
        elif setting.kind is bool:
            flags.DEFINE_boolean(name, default, text, flag_values=values)
        elif setting.choices:
            flags.DEFINE_enum(name, default, setting.choices, text, flag_values=values)
        elif setting.kind is int:
            flags.DEFINE_integer(name, default, text, flag_values=values, **bounds)
        elif setting.kind is float:
            flags.DEFINE_float(name, default, text, flag_values=values, **bounds)
        else:
            flags.DEFINE_string(name, default, text, flag_values=values)


class _ListFlag(flags.Flag):
    """A list with commas; of it and the flag that it may replace, the last one counts."""

    def __init__(self, setting: Setting, values: flags.FlagValues):
        self._other, self._values = setting.instead_of, values
        serializer, default = flags.CsvListSerializer(","), list(map(str, setting.default))
        super().__init__(flags.ListParser(), serializer, setting.name, default, setting.help)

    def parse(self, argument: str | list[str]) -> None:
        super().parse(argument)
        if self.value and self._other:
            self._values[self._other].unparse()


class _BoolOrChoiceParser(flags.ArgumentParser):
    """A bool that also takes choices: `--list`, `--nolist` or `--list=encoders`."""

    def __init__(self, choices: Sequence[str]):
        self._choices = choices

    def parse(self, argument: Any) -> bool | str:
        if argument in self._choices:
            return argument
        try:
            return flags.BooleanParser().parse(argument)
        except ValueError:
            raise ValueError(f"value should be one of {', '.join(self._choices)}") from None


def _bound_list(setting: Setting, values: flags.FlagValues) -> None:
    """Makes a list take only numbers within the bounds."""
    lowest, kind = setting.low, setting.kind
    if lowest is None:
        return
    largest = LARGEST_INTEGER if setting.high is None else setting.high

    def within_bounds(texts: list[str]) -> bool:
        try:
            return all(lowest <= kind(text) <= largest for text in texts)
        except ValueError:
            return False

    form = "whole numbers" if kind is int else "numbers"
    message = f"takes {form} from {lowest:g} to {largest:.10g}, with commas between"
    flags.register_validator(setting.name, within_bounds, message, values)


def check_numbers(values: flags.FlagValues) -> None:
    """Raises IllegalFlagValueError for NaN and integers beyond int32, which absl lets pass."""
    for name in values:
        value = values[name].value
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise flags.IllegalFlagValueError(
                f"flag --{name}={value}: {value} is more than {LARGEST_INTEGER}"
            )
        if isinstance(value, float) and math.isnan(value):
            raise flags.IllegalFlagValueError(f"flag --{name}=nan: nan is not a number")


def build(
    cls: type[Config], values: Mapping[str, Any], given: Collection[str] = (), script: str = ""
) -> Config:
    """Makes a configuration from values of flags, and defaults for the others.

    Args:
      values: Values by name, from flags or from a `config.json`, in which numbers may be texts.
    """
    typed = {}
    for name, setting in settings(cls).items():
        try:
            if name in values:
                typed[name] = _typed(setting, values[name])
        except (ValueError, TypeError) as error:
            raise ConfigurationError(
                f"config.json of the run has {name}={values[name]!r}: {error}; put back a whole "
                "file"
            ) from error
    config = replace(cls(), **typed)
    return dataclasses.replace(config, script=script, given=frozenset(given))


def _typed(setting: Setting, value: Any) -> Any:
    """A value of the field's type; JSON and flags may hold numbers as texts."""
    if value is None and setting.default is None:
        return None
    if setting.kind is bool and value in setting.choices:
        return value
    if setting.is_list and isinstance(value, list | tuple):
        return tuple(_typed(setting._replace(is_list=False), item) for item in value)
    allowed: Any = {int: int | str, float: int | float | str}.get(setting.kind, setting.kind)
    is_bool = isinstance(value, bool)  # Also an int in Python.
    if setting.is_list or not isinstance(value, allowed) or is_bool != (setting.kind is bool):
        raise TypeError(f"it is no {'list' if setting.is_list else setting.kind.__name__}")
    return setting.kind(value)


def flat(config: Any) -> dict[str, Any]:
    """The values of all flags, also in sections, by name."""
    found: dict[str, Any] = {}
    for field in own_fields(config):
        value = getattr(config, field.name)
        found |= flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found


def replace(config: Config, **changes: Any) -> Config:
    """A copy with other values of some flags, which may be in sections."""
    updates: dict[str, Any] = {}
    for field in own_fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            inside = {name: changes[name] for name in flat(value) if name in changes}
            updates[field.name] = dataclasses.replace(value, **inside)  # type: ignore[type-var]
        elif field.name in changes:
            updates[field.name] = changes[field.name]
    return dataclasses.replace(config, **updates)


def to_json(config: Settings) -> dict[str, Any]:
    """The configuration for `config.json`: the script's name, and its flags, grouped by section."""
    content: dict[str, Any] = {"script": config.script}
    values = flat(config)
    for name, setting in settings(type(config), config.script).items():
        if not setting.recorded:
            continue
        inside = content.setdefault(setting.section, {}) if setting.section else content
        inside[name] = json_value(values[name])
    return content


def json_value(value: Any) -> Any:
    """The value; a list for a tuple, and a text for an infinity such as `--alpha=inf`."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
