"""Configurations of scripts: frozen dataclasses, whose fields are the flags of the script.

The default and the bounds of a flag are those of the field, and its help text stands below
`Attributes:` in the docstring of the class. From a script's class come its flags (`define`), the
object with which it runs (`build`), and the `config.json` of its runs (`to_json`). A field may be a
section, a dataclass of further flags; names of flags are unique.
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

FEDERATED = ("pretrain", "lower")  # The scripts with all flags of federated runs.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What every configuration has.

    Attributes:
      script: Name of the script; empty where none has read the flags.
      given: Names of the flags that the command line or a preset gives.
    """

    script: str = ""
    given: frozenset[str] = frozenset()


Config = TypeVar("Config", bound=Settings)


class _Declared(NamedTuple):
    """What a field says of its flag; see `flag`."""

    low: float | None = None
    high: float | None = None
    choices: Sequence[str] = ()
    repeated: bool = False
    instead_of: str = ""
    scripts: Collection[str] = ()
    names: str = ""
    in_script: Mapping[str, tuple[Any, str]] = types.MappingProxyType({})


class Setting(NamedTuple):
    """A flag.

    Attributes:
      name: Its name.
      kind: Type of its value, or of the items of a list: bool, int, float or str.
      is_list: Whether its value is a tuple.
      default: Its default.
      help: Its help text.
      declared: What its field says of it.
    """

    name: str
    kind: type
    is_list: bool
    default: Any
    help: str
    declared: _Declared


def flag(default: Any, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """A field that is a flag with bounds, or with one of these further arguments.

    Args:
      default: Its default.
      low: Smallest number that it takes, also in a list.
      high: Largest number that it takes.
      **more: `choices`, the texts that it takes, where its type is no `Literal`. `repeated`, if a
        list is given by repeating the flag and not with commas. `instead_of`, the flag in place of
        which it may be given, of which the last one counts. `scripts`, those that have the flag, if
        not all with the section do. `names`, a text for `{names}` in its help. `in_script`, default
        and help text by the name of a script in which they differ.
    """
    return dataclasses.field(default=default, metadata={"flag": _Declared(low, high, **more)})


def section(cls: type, *scripts: str) -> Any:
    """A field that is a section of flags, which these scripts have; all if none are named."""
    return dataclasses.field(default=cls(), metadata={"flag": _Declared(scripts=scripts)})


def settings(cls: type, script: str | None = None) -> dict[str, Setting]:
    """The flags of a class and of its sections by name, in order.

    Args:
      cls: The class of a configuration.
      script: Name of the script whose flags they are; None for those of all scripts.
    """
    found: dict[str, Setting] = {}
    hints, texts = typing.get_type_hints(cls), hyperparameters.descriptions(cls)
    unit = "steps" if script in ("centralized", "detect") else "rounds"
    for field in own_fields(cls):
        hint, declared = hints[field.name], field.metadata.get("flag", _Declared())
        if script is not None and declared.scripts and script not in declared.scripts:
            continue
        if dataclasses.is_dataclass(hint):
            found |= settings(hint, script)  # type: ignore[arg-type]
            continue
        text = texts[field.name].replace("{names}", declared.names).replace("{unit}", unit)
        default, text = declared.in_script.get(script or "", (field.default, text))
        if typing.get_origin(hint) is typing.Literal:
            hint, declared = str, declared._replace(choices=typing.get_args(hint))
        found[field.name] = Setting(field.name, *_kind(hint), default, text, declared)
    return found


def own_fields(config: Any) -> list[dataclasses.Field]:
    """The flags and sections of a class or an object; those that it inherits come last."""
    cls = config if isinstance(config, type) else type(config)
    order = [name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())]
    ordered = sorted(dataclasses.fields(cls), key=lambda field: order.index(field.name))
    return [field for field in ordered if field.name not in ("script", "given")]


def _kind(hint: Any) -> tuple[type, bool]:
    """The type of a field's value without None, or of its items; and whether it is a tuple."""
    if isinstance(hint, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    return (typing.get_args(hint)[0], True) if typing.get_origin(hint) is tuple else (hint, False)


def define(cls: type, script: str, values: flags.FlagValues) -> None:
    """Defines the flags of a class.

    Args:
      cls: The class of a configuration.
      script: Name of the script.
      values: The flags to which they are added.
    """
    for setting in settings(cls, script).values():
        name, kind, is_list, default, text, declared = setting
        bounds = {"lower_bound": declared.low, "upper_bound": declared.high}
        if declared.repeated:
            flags.DEFINE_multi_string(name, list(default), text, flag_values=values)
        elif is_list:
            flags.DEFINE_flag(_ListFlag(setting, values), values)
            _bound_list(setting, values)
        elif kind is bool:
            flags.DEFINE_boolean(name, default, text, flag_values=values)
        elif declared.choices:
            flags.DEFINE_enum(name, default, declared.choices, text, flag_values=values)
        elif kind is int:
            flags.DEFINE_integer(name, default, text, flag_values=values, **bounds)
        elif kind is float:
            flags.DEFINE_float(name, default, text, flag_values=values, **bounds)
        else:
            flags.DEFINE_string(name, default, text, flag_values=values)


class _ListFlag(flags.Flag):
    """A list with commas; if it is given in place of another flag, the last one counts."""

    def __init__(self, setting: Setting, values: flags.FlagValues):
        self._other, self._values = setting.declared.instead_of, values
        serializer, default = flags.CsvListSerializer(","), list(map(str, setting.default))
        super().__init__(flags.ListParser(), serializer, setting.name, default, setting.help)

    def parse(self, argument: str | list[str]) -> None:
        super().parse(argument)
        if self.value and self._other:
            self._values[self._other].unparse()


def _bound_list(setting: Setting, values: flags.FlagValues) -> None:
    """Makes a list of numbers take those within the bounds only."""
    lowest, kind = setting.declared.low, setting.kind
    if lowest is None:
        return
    largest = LARGEST_INTEGER if setting.declared.high is None else setting.declared.high

    def within_bounds(texts: list[str]) -> bool:
        try:
            return all(lowest <= kind(text) <= largest for text in texts)
        except ValueError:
            return False

    form = "whole numbers" if kind is int else "numbers"
    message = f"takes {form} from {lowest:g} to {largest:.10g}, with commas between"
    flags.register_validator(setting.name, within_bounds, message, values)


def check_numbers(values: flags.FlagValues) -> None:
    """Checks what absl lets pass: NaN, which is not outside of any bounds, and too large integers.

    Raises:
      flags.IllegalFlagValueError: If a flag is NaN, or a whole number that does not fit int32.
    """
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
    """Makes a configuration from the values of flags.

    Args:
      cls: Its class.
      values: Values by name, from flags or from a `config.json`, in which lists may be of texts,
        and infinities are texts. Fields without one have their defaults.
      given: Names of the flags that are given.
      script: Name of the script.

    Raises:
      ConfigurationError: If a value is not of its field's type.
    """
    return dataclasses.replace(_build(cls, values), script=script, given=frozenset(given))


def _build(cls: type, values: Mapping[str, Any]) -> Any:
    known, hints = settings(cls), typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in own_fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _build(hints[field.name], values)  # type: ignore[arg-type]
        elif field.name in values:
            arguments[field.name] = _typed(known[field.name], values[field.name])
    return cls(**arguments)


def _typed(setting: Setting, value: Any) -> Any:
    """A value as the field has it."""
    if value is None and setting.default is None:
        return None
    try:
        if setting.is_list and isinstance(value, list | tuple):
            return tuple(_item(setting.kind, item) for item in value)
        return _item(setting.kind, value)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"config.json of the run has {setting.name}={value!r}: {error}; put back a whole file"
        ) from error


def _item(kind: type, value: Any) -> Any:
    """A value of a type, which JSON and flags may hold as a text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, kind) and (is_number or kind in (bool, str)):
        return value
    if kind in (int, float) and (isinstance(value, str) or (kind is float and is_number)):
        return kind(value)
    raise TypeError(f"it is no {kind.__name__}")


def flat(config: Any) -> dict[str, Any]:
    """The values of all flags by name, those in sections too."""
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
            updates[field.name] = replace(value, **inside)
        elif field.name in changes:
            updates[field.name] = changes[field.name]
    return dataclasses.replace(config, **updates)  # type: ignore[type-var]


def to_json(config: Any) -> dict[str, Any]:
    """The configuration for `config.json`: the name of the script, and its flags, those of a
    section in an object of its own.
    """
    own = settings(type(config), config.script)
    return {"script": config.script, **_section_to_json(config, own)}


def _section_to_json(config: Any, own: Collection[str]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for field in own_fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            inside = _section_to_json(value, own)
            content |= {field.name: inside} if inside else {}
        elif field.name in own:
            content[field.name] = json_value(value)
    return content


def json_value(value: Any) -> Any:
    """The value; the text of an infinity such as `--alpha=inf`, and a list for a tuple."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
