"""Bounds of a dataclass's fields, written beside each field and checked in each new instance.

```
@dataclasses.dataclass(frozen=True)
class Hyperparameters(Bounded):
    mu: float = bounded(0.4, at_least=0)
    optimizer: str = one_of("sgd", ("adam", "sgd"))
```

A subclass that gives a field another default keeps its bound.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_KEY = "bound"


class Bound(NamedTuple):
    """The values that a field may have: numbers between two ends, or one of some choices."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: Sequence[Any] = ()

    def holds(self, value: Any) -> bool:
        """Whether a value is within the bound; NaN never is."""
        return (
            (not self.choices or value in self.choices)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.choices:
            return f"must be one of {', '.join(map(str, self.choices))}"
        lower = self.above if self.at_least is None else self.at_least
        upper = self.below if self.at_most is None else self.at_most
        if upper is not None:
            left, right = "(["[self.above is None], ")]"[self.below is None]
            return f"must be in {left}{lower:g}, {upper:g}{right}"
        if lower == 0:
            return "must be positive" if self.at_least is None else "must not be negative"
        return f"must be at least {lower}"


class Bounded:
    """Base class of dataclasses whose fields have bounds.

    A subclass may check its fields against each other in its own `__post_init__`, which calls that
    of `super()` first.
    """

    def __post_init__(self) -> None:
        """Raises a ValueError that names the first field out of its bound, and the bound."""
        for name, bound in bounds(type(self)).items():
            value = getattr(self, name)
            if not bound.holds(value):
                raise ValueError(f"{name.rstrip('_')} {bound}; got {value!r}")


def bounds(cls: type) -> dict[str, Bound]:
    """The bounds of a dataclass's fields by name, including inherited ones."""
    found: dict[str, Bound] = {}
    for base in reversed(cls.__mro__):
        for name, field in vars(base).get("__dataclass_fields__", {}).items():
            if _KEY in field.metadata:
                found[name] = field.metadata[_KEY]
    return found


def bounded(default: Any = dataclasses.MISSING, **ends: Any) -> Any:
    """A field whose values have a lower bound, and may have an upper one: the ends of `Bound`."""
    return dataclasses.field(default=default, metadata={_KEY: Bound(**ends)})


def one_of(default: Any, choices: Iterable[Any]) -> Any:
    """A field whose value is one of the choices."""
    return dataclasses.field(default=default, metadata={_KEY: Bound(choices=tuple(choices))})
