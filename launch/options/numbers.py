"""Bounds of the flags that take numbers.

Every such flag names its bounds where it is defined. The checks here add what absl lets pass: NaN,
which is not outside of any bounds, whole numbers that do not fit int32, and lists of texts.
"""

import math

from absl import flags

# TensorFlow's sizes and counts are int32.
LARGEST_INTEGER = 2**31 - 1


def check(values: flags.FlagValues) -> None:
    """Checks the values of all flags that take a number.

    Raises:
      flags.IllegalFlagValueError: If one is NaN, or a whole number that does not fit int32.
    """
    for name in values:
        value = values[name].value
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise flags.IllegalFlagValueError(
                f"flag --{name}={value}: {value} is more than {LARGEST_INTEGER}"
            )
        if isinstance(value, float) and math.isnan(value):
            raise flags.IllegalFlagValueError(f"flag --{name}=nan: nan is not a number")


def bound_list(
    name: str,
    kind: type[int] | type[float],
    lowest: float,
    largest: float = LARGEST_INTEGER,
    flag_values: flags.FlagValues = flags.FLAGS,
) -> None:
    """Makes a list flag, which has been defined, take numbers within bounds only.

    Args:
      name: Name of the flag.
      kind: Type of the numbers.
      lowest: Smallest number that is taken.
      largest: Largest number that is taken.
      flag_values: The flags.
    """

    def within_bounds(texts: list[str]) -> bool:
        try:
            return all(lowest <= kind(text) <= largest for text in texts)
        except ValueError:
            return False

    form = "whole numbers" if kind is int else "numbers"
    flags.register_validator(
        name,
        within_bounds,
        f"takes {form} from {lowest:g} to {largest:.10g}, with commas between",
        flag_values,
    )
