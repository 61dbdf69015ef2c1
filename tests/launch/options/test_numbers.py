"""Flags that take numbers refuse NaN and all that lies outside their bounds, in every script."""

import dataclasses
import importlib
import pathlib

import pytest
from absl import flags

from launch.options import command_line, settings
from launch.options.settings import Settings, flag
from tff_ssl.errors import ConfigurationError

ROOT = pathlib.Path(__file__).parents[3]
SCRIPTS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in (ROOT / "launch", ROOT / "launch" / "studies")
    for path in folder.glob("[!_]*.py")
    if "\nSCRIPT = " in path.read_text()
)
BAD = ("nan", "inf", "-1", "0", "1e38", "1" + 20 * "0", "text")
# What is a right value of some flags.
ALLOWED = {
    "alpha": {"inf", "1e38", "1" + 20 * "0"},  # inf is IID, and all large values are nearly.
    "dp_epsilon": {"inf", "1e38", "1" + 20 * "0"},  # inf is no noise; others are refused later.
    "max_concurrent_calls": {"-1"},
}
ZERO = {
    "alpha", "batch_sizes", "beta", "connectivity", "dp_clip", "dp_delta", "dp_epsilon",
    "dp_noise_multiplier", "dp_statistics_clip", "dp_statistics_noise_multiplier", "dropout",
    "eval_every", "fold", "freeze", "max_concurrent_calls", "max_dropped", "minutes",
    "near_duplicates", "personalized_clients", "rounds", "seed", "seeds", "steady_rounds",
    "sweep_seed",
}  # fmt: skip


def refused_by(script):
    """By flag of a script that takes numbers: the error for each of BAD, or None."""
    description = importlib.import_module(script).SCRIPT
    errors = {}
    for name, setting in settings.settings(description.config, description.name).items():
        if setting.kind in (int, float):
            errors[name] = {text: _error(description, f"--{name}={text}") for text in BAD}
    return errors


def _error(description, argument):
    """The message with which the command line is refused; None if it is not."""
    try:
        command_line.parse(description.config, description.name, ["script", argument])
    except flags.Error as error:
        return str(error)
    except ConfigurationError:  # The number is one, and the default partition does not read it.
        pass
    return None


@pytest.mark.slow
def test_every_flag_of_every_script_refuses_what_is_no_number_within_its_bounds():
    found = {script: refused_by(script) for script in SCRIPTS}
    for script, by_flag in found.items():
        assert by_flag or script == "launch.check_gpu", script
        for name, errors in by_flag.items():
            for text, error in errors.items():
                where = f"{script} --{name}={text}"
                if error is None:
                    assert text in ALLOWED.get(name, ()) or (text == "0" and name in ZERO), where
                else:
                    assert name in error, where
                    assert len(error.splitlines()) == 1, where
    lists = {name for by_flag in found.values() for name in by_flag}
    assert {"projector", "labels", "learning_rates", "finetune_steps", "dimensions"} <= lists


@dataclasses.dataclass(frozen=True)
class Numbers(Settings):
    """Some numbers.

    Attributes:
      sizes: Sizes.
      rates: Rates.
      rate: A rate.
      count: A count.
    """

    sizes: tuple[int, ...] = flag((1,), 1)
    rates: tuple[float, ...] = flag((), 1)
    rate: float = flag(1.0, 0.0, 1.0)
    count: int = 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sizes", "1,2", (1, 2)), ("sizes", "1,x", None), ("sizes", "0", None),
        ("sizes", "2.5", None), ("sizes", str(2**31), None), ("rates", "nan", None),
        ("rates", "inf", None), ("rates", "1.5", (1.5,)), ("rates", "", ()),
    ],
)  # fmt: skip
def test_the_numbers_of_a_list_are_within_bounds(name, text, value):
    argv = ["script", f"--{name}={text}"]
    if value is not None:
        assert getattr(command_line.parse(Numbers, "script", argv)[0], name) == value
    else:
        with pytest.raises(flags.IllegalFlagValueError, match=r"--.*=.*takes .*numbers from 1"):
            command_line.parse(Numbers, "script", argv)


@pytest.mark.parametrize("argument", ["--rate=nan", "--count=2147483648", "--count=-2147483648"])
def test_nan_and_large_whole_numbers_are_refused(argument):
    with pytest.raises(flags.IllegalFlagValueError, match=argument[:7]):
        command_line.parse(Numbers, "script", ["script", argument])
