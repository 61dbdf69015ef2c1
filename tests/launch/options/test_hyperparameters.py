"""Parsing of hyperparameters `name=value`."""

import dataclasses

import pytest

from launch.options import hyperparameters
from tff_ssl.algorithms import registry
from tff_ssl.algorithms.dcco.parts import DCCOHyperparameters
from tff_ssl.algorithms.hetero_ssfl import HeteroSSFLHyperparameters
from tff_ssl.errors import ConfigurationError
from tff_ssl.objectives.hyperparameters import ObjectiveHyperparameters
from tff_ssl.objectives.registry import (
    GENERAL_OBJECTIVES,
    OBJECTIVES,
    unused_hyperparameters,
)
from tff_ssl.simulation.centralized import CentralizedHyperparameters


@dataclasses.dataclass(frozen=True)
class Example:
    lambda_: float = 20.0
    steps: int = 3
    name: str = "adam"
    on: bool = False

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"steps must not be negative; got {self.steps}")


def test_values_take_the_type_of_the_default():
    parsed = hyperparameters.parse(Example, ["lambda=5", "steps=7", "name=lars", "on=true"])
    assert parsed == Example(5.0, 7, "lars", True)
    assert isinstance(parsed.lambda_, float)


def test_the_last_value_counts_and_other_fields_keep_their_defaults():
    assert hyperparameters.parse(Example, ["steps=1", "steps=2"]) == Example(steps=2)


@pytest.mark.parametrize(
    ("assignment", "named"),
    [
        ("nosuch=1", "name of lambda, name, on, steps"),
        ("steps", "give name=value"),
        ("steps=1.5", "not of type int"),
        ("lambda=nan", "lambda=nan: 'nan' is not a finite number"),
        ("lambda=-inf", "not a finite number"),
        ("on=maybe", "true or false"),
        ("steps=-1", "must not be negative"),
    ],
)
def test_the_error_names_the_mistake(assignment, named):
    with pytest.raises(ConfigurationError, match=f"--hparam.*{named}"):
        hyperparameters.parse(Example, [assignment])


CLASSES = {entry.hyperparameters for entry in registry.ALGORITHMS.values()}


@pytest.mark.parametrize(
    "cls", sorted([*CLASSES, CentralizedHyperparameters], key=lambda cls: cls.__name__)
)
def test_every_number_has_bounds(cls):
    numeric = [f.name for f in dataclasses.fields(cls) if type(f.default) in (int, float)]
    assert len(numeric) > 4
    for name in numeric:
        for text in ("nan", "inf", "-1", "1e38", "1" + 20 * "0", "text"):
            with pytest.raises(ConfigurationError, match="--hparam"):
                hyperparameters.parse(cls, [f"{name}={text}"])


def test_a_run_shows_the_hyperparameters_that_differ_from_the_defaults():
    text = hyperparameters.describe(Example(lambda_=2.0, name="lars"), ())
    assert text.splitlines() == [
        "hyperparameter  value  default",
        "lambda            2.0     20.0",
        "name             lars     adam",
        "(2 more have their defaults; --list shows them)",
    ]
    text = hyperparameters.describe(Example(), ("on",))
    assert text == "hyperparameters: all 3 have their defaults (--list shows them)"


def test_a_run_does_not_show_what_other_objectives_use():
    values = HeteroSSFLHyperparameters(mu=0.25, temperature=0.5, byol_direction="one")
    text = hyperparameters.describe(values, unused_hyperparameters("byol"))
    first_words = [line.split()[0] for line in text.splitlines()]
    assert first_words[:-1] == ["hyperparameter", "byol_direction", "mu"]
    values = DCCOHyperparameters(lambda_=3.0, temperature=0.5)
    assert hyperparameters.changed(values, unused_hyperparameters("cco")) == [("lambda", 3.0, 20.0)]


def test_every_hyperparameter_of_a_loss_belongs_to_an_objective():
    fields = {field.name for field in dataclasses.fields(ObjectiveHyperparameters)}
    named = [name for o in GENERAL_OBJECTIVES for name in OBJECTIVES[o].hyperparameters]
    assert len(named) == len(set(named))
    for entry in OBJECTIVES.values():
        assert set(entry.hyperparameters) <= set(named)
    assert set(named) == fields | {"target_momentum"}
