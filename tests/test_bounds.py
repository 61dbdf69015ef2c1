"""Tests of the bounds of hyperparameters and of other dataclasses."""

import dataclasses
import math
import re

import pytest

from tff_ssl.aggregation.differential_privacy import GaussianMean
from tff_ssl.algorithms import registry
from tff_ssl.bounds import Bound, Bounded, bounded, bounds, one_of
from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers
from tff_ssl.simulation.centralized import CentralizedHyperparameters

ENCODER = {"encoder": "tiny", "image_shape": (8, 8, 3)}
REQUIRED = {
    DualEncoder: ENCODER,
    TwoTowers: {"tower": DualEncoder(**ENCODER)},
    GaussianMean: {"noise_multiplier": 1.0, "clip": 1.0},
}
HYPERPARAMETERS = {
    *(algorithm.hyperparameters for algorithm in registry.ALGORITHMS.values()),
    CentralizedHyperparameters,
    DetectionHyperparameters,
}
CLASSES = sorted({*HYPERPARAMETERS, *REQUIRED}, key=lambda cls: cls.__name__)


def outside(bound):
    """Values just outside a bound, and NaN for numbers."""
    if bound.choices:
        return ["no such choice"]
    low = None if bound.at_least is None else math.nextafter(bound.at_least, -math.inf)
    high = None if bound.at_most is None else math.nextafter(bound.at_most, math.inf)
    return [math.nan, *(v for v in (low, bound.above, high, bound.below) if v is not None)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_bound_is_enforced(cls):
    for name, bound in bounds(cls).items():
        for value in outside(bound):
            text = rf"^{name.rstrip('_')} must .+; got {re.escape(repr(value))}$"
            with pytest.raises(ValueError, match=text):
                cls(**REQUIRED.get(cls, {}) | {name: value})


@pytest.mark.parametrize(
    "cls", sorted(HYPERPARAMETERS, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__
)
def test_every_hyperparameter_that_is_a_number_or_a_name_has_a_bound(cls):
    texts_and_numbers = {f.name for f in dataclasses.fields(cls) if type(f.default) is not bool}
    assert texts_and_numbers == set(bounds(cls))


def test_messages_say_what_is_right():
    messages = {
        "must not be negative": Bound(at_least=0),
        "must be positive": Bound(above=0),
        "must be at least 2": Bound(at_least=2),
        "must be in [0, 1)": Bound(at_least=0, below=1),
        "must be in (0, 1]": Bound(above=0, at_most=1),
        "must be one of adam, sgd": Bound(choices=("adam", "sgd")),
    }
    assert {text: str(bound) for text, bound in messages.items()} == {t: t for t in messages}


def test_the_ends_of_a_bound():
    assert [Bound(at_least=0, below=1).holds(x) for x in (0, 0.5, 1)] == [True, True, False]
    assert [Bound(above=0, at_most=1).holds(x) for x in (0, 0.5, 1)] == [False, True, True]


@dataclasses.dataclass(frozen=True)
class _Base(Bounded):
    rate: float = bounded(0.1, above=0)
    name: str = one_of("a", ("a", "b"))


@dataclasses.dataclass(frozen=True)
class _Narrowed(_Base):
    rate: float = 0.5
    name: str = one_of("b", ("b",))


def test_another_default_keeps_the_bound_and_another_bound_replaces_it():
    assert _Narrowed() == _Narrowed(0.5, "b")
    with pytest.raises(ValueError, match=r"^rate must be positive; got 0$"):
        _Narrowed(rate=0)
    with pytest.raises(ValueError, match=r"^name must be one of b; got 'a'$"):
        _Narrowed(name="a")
