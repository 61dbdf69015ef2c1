"""Flags that take numbers refuse NaN and all that lies outside their bounds, in every script."""

import json
import pathlib
import sys

import pytest
from absl import flags

from launch.options import numbers
from tests import programs

ROOT = pathlib.Path(__file__).parents[3]
SCRIPTS = sorted(path.stem for path in (ROOT / "launch").glob("[!_]*.py"))
BAD = ("nan", "inf", "-1", "0", "1e38", "1" + 20 * "0", "text")
# What is a right value of some flags.
ALLOWED = {
    "alpha": {"inf", "0", "1e38", "1" + 20 * "0"},  # inf is IID, and all large values are nearly.
    "dp_epsilon": {"inf", "1e38", "1" + 20 * "0"},  # inf is no noise; others are refused later.
    "max_concurrent_calls": {"-1", "0"},
}


def refused():
    """For each script, by flag that takes numbers: the error for each of BAD, or None."""
    return json.loads(
        programs.run(
            [sys.executable, "-m", "tests.launch.options.test_numbers", *SCRIPTS],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
            timeout=1200,
        ).stdout.splitlines()[-1]
    )


def _refused_by(script):
    """The errors of one script, whose flags must be the only ones of this project."""
    import importlib

    importlib.import_module(f"launch.{script}")
    values = flags.FLAGS
    own = {flag.name for module, found in values.flags_by_module_dict().items()
           if module.startswith("launch") for flag in found}  # fmt: skip
    bounded = {name for v in values._flags().values() for name in _list_flags(v)}
    errors = {}
    for name in sorted(own):
        numeric = isinstance(values[name].parser, flags.FloatParser | flags.IntegerParser)
        if numeric or name in bounded:
            errors[name] = {text: _error(f"--{name}={text}") for text in BAD}
    for name in own:
        delattr(values, name)
    for module in [m for m in sys.modules if m.startswith("launch.")]:
        if module.removeprefix("launch.") in SCRIPTS:
            del sys.modules[module]
    return errors


def _list_flags(flag):
    """The name of a list flag that has a validator."""
    return [flag.name] if isinstance(flag.parser, flags.ListParser) and flag.validators else []


def _error(argument):
    """The message with which the command line is refused; None if it is not."""
    try:
        flags.FLAGS(["script", argument])
        numbers.check(flags.FLAGS)
    except flags.Error as error:
        return str(error)
    finally:
        flags.FLAGS.unparse_flags()
        flags.FLAGS[argument[2:].partition("=")[0]].unparse()
    return None


@pytest.mark.slow
def test_every_flag_of_every_script_refuses_what_is_no_number_within_its_bounds():
    found = refused()
    assert set(found) == set(SCRIPTS)
    for script, by_flag in found.items():
        assert by_flag, script
        for name, errors in by_flag.items():
            for text, error in errors.items():
                where = f"{script} --{name}={text}"
                if error is None:
                    assert text in {"0", *ALLOWED.get(name, ())}, where
                else:
                    assert name in error, where
                    assert len(error.splitlines()) == 1, where
    lists = {name for by_flag in found.values() for name in by_flag}
    assert {"projector", "labels", "learning_rates", "finetune_steps", "dimensions"} <= lists


@pytest.mark.parametrize(
    ("kind", "text", "is_right"),
    [
        (int, "1,2", True), (int, "1,x", False), (int, "0", False), (int, "2.5", False),
        (int, str(2**31), False), (float, "nan", False), (float, "inf", False),
        (float, "1.5", True), (float, "", True),
    ],
)  # fmt: skip
def test_the_numbers_of_a_list_are_within_bounds(kind, text, is_right):
    values = flags.FlagValues()
    flags.DEFINE_list("sizes", ["1"], "Sizes.", flag_values=values)
    numbers.bound_list("sizes", kind, 1, flag_values=values)
    if is_right:
        values(["script", f"--sizes={text}"])
    else:
        with pytest.raises(flags.IllegalFlagValueError, match=r"--sizes=.*takes .*numbers from 1"):
            values(["script", f"--sizes={text}"])


def test_nan_and_large_whole_numbers_are_refused():
    values = flags.FlagValues()
    flags.DEFINE_float("rate", 1.0, "Rate.", 0.0, 1.0, flag_values=values)
    flags.DEFINE_integer("count", 1, "Count.", flag_values=values)
    values(["script"])
    numbers.check(values)
    for argument in ("--rate=nan", "--count=2147483648", "--count=-2147483648"):
        values(["script", argument])
        with pytest.raises(flags.IllegalFlagValueError, match=argument[:7]):
            numbers.check(values)
        values.unparse_flags()
        values.rate, values.count = 1.0, 1


if __name__ == "__main__":
    print(json.dumps({script: _refused_by(script) for script in sys.argv[1:]}))
