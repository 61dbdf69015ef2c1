"""Verdicts on statements: differences paired by seed, their 95 % intervals, Holm's correction.

Runs of one seed share clients, images and initial weights. A statement is therefore judged by one
number per seed (see `experiment.Contrast`), whose mean has an interval by Student's t distribution.
`docs/reproduce.md` describes the rule to users.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.experiment import Claim, Contrast, Table
from tff_ssl.reporting.measured import DIFFERENCES, SENT, TableValues, Value

_LEAST_DEVIATION = 0.001  # Of differences of accuracies that are the same for all seeds.
LEVEL = 0.05  # Of the two sides of a test together: intervals are of 95 %.
HOLDS, CONTRADICTED, NOT_SHOWN, NOT_MEASURED = VERDICTS = (
    "holds", "does not hold", "not shown", "not measured",
)  # fmt: skip


# Protocols of figures that are no probe of an encoder.
_OWN_CLASSIFIERS = ("supervised", "scratch")
_STARTS = ("random_encoder", "pretrained_encoder")  # Baselines: encoders before training.


class Estimate(NamedTuple):
    """What was measured of a contrast."""

    mean: float  #: Mean over seeds.
    error: float  #: Standard error of the mean; infinite if a single seed was measured.
    freedom: float  #: Degrees of freedom.
    margin: float  #: The contrast's margin.
    is_paired: bool  #: Whether the differences are paired by seed.

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean."""
        from scipy import stats

        half = float(stats.t.ppf(1 - LEVEL / 2, self.freedom)) * self.error if self.error else 0.0
        return self.mean - half, self.mean + half

    def p_value(self) -> float:
        """The two-sided p-value of the hypothesis that the true mean is the margin."""
        from scipy import stats

        distance = abs(self.mean - self.margin)
        if not self.error:
            return 1.0 if math.isclose(self.mean, self.margin, abs_tol=1e-12) else 0.0
        return 2 * float(stats.t.sf(distance / self.error, self.freedom))

    @property
    def is_above(self) -> bool:
        """Whether the mean is above the margin."""
        return self.mean > self.margin


def estimate(contrast: Contrast, table: Table, values: TableValues) -> Estimate | None:
    """What was measured of a contrast; None if one of its figures was not.

    Numbers are paired by seed. Where only means and deviations of the figures are kept, the
    interval is that of Welch, with Satterthwaite's degrees of freedom. A failed training counts as
    an accuracy of 0; counts and differences are not measured if one failed. What is sent follows
    from types and flags, so that one seed is exact.
    """
    terms = [(weight, values[figure]) for figure, weight in contrast.weights.items()]
    if any(not value.seeds and not (value.failed and table.percent) for _, value in terms):
        return None
    is_level = table.percent and table.selector.metric not in DIFFERENCES
    if any(value.failed and not is_level for _, value in terms):
        return None
    if not all(value.by_seed for _, value in terms):
        return _unpaired(terms, contrast.margin)
    seeds = set.intersection(*(set(value.by_seed) for _, value in terms))
    numbers = [sum(w * (value.by_seed[s] or 0.0) for w, value in terms) for s in sorted(seeds)]
    if not seeds:
        return None
    mean, deviation, count = over_seeds.spread(numbers)
    if deviation is None:
        error = 0.0 if count and table.selector.metric in SENT else math.inf
        return Estimate(mean, error, 1, contrast.margin, True)
    if deviation <= 1e-9 * max(1.0, abs(mean)):  # Differences of equal figures differ by rounding.
        # Accuracies are equal by chance: they are multiples of one by the number of test images.
        deviation = _LEAST_DEVIATION if table.percent else 0.0
    error = deviation / math.sqrt(count)
    return Estimate(mean, error, count - 1, contrast.margin, True)


def _unpaired(terms: Sequence[tuple[float, Value]], margin: float) -> Estimate:
    mean = sum(weight * value.mean for weight, value in terms)
    if any(value.seeds < 2 for _, value in terms):
        return Estimate(mean, math.inf, 1, margin, False)
    parts = [((weight * value.std) ** 2 / value.seeds, value.seeds - 1) for weight, value in terms]
    variance = sum(part for part, _ in parts)
    inverse = sum(part**2 / freedom for part, freedom in parts)
    return Estimate(
        mean, math.sqrt(variance), variance**2 / inverse if inverse else 1, margin, False
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: those below `LEVEL` are significant together."""
    adjusted, last = [0.0] * len(p_values), 0.0
    for step, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        last = adjusted[i] = min(1.0, max(last, (len(p_values) - step) * p_values[i]))
    return adjusted


def decide(estimates: Sequence[Estimate | None], learned: Collection[bool] = ()) -> str:
    """The verdict on a conjunction of contrasts.

    It holds if each contrast is above its margin, and does not hold if any is below it. Holm's
    correction over all contrasts applies to both, so that a single contrast is called true or false
    by mistake with a probability of `LEVEL` at most, however many there are.

    Args:
      estimates: What was measured of each contrast.
      learned: Whether each contrast can be decided (see `has_learned`); empty if all can.
    """
    return _all_of(_states(estimates, learned or [True] * len(estimates)))


def _states(estimates: Sequence[Estimate | None], learned: Collection[bool]) -> list[str]:
    """The verdict on each contrast."""
    corrected = iter(holm([one.p_value() for one in estimates if one is not None]))
    states = []
    for one, can_be_decided in zip(estimates, learned, strict=True):
        if one is None:
            states.append(NOT_MEASURED)
            continue
        side = HOLDS if one.is_above else CONTRADICTED
        is_decided = next(corrected) < LEVEL and can_be_decided
        states.append(side if is_decided else NOT_SHOWN)
    return states


def _all_of(states: Sequence[str]) -> str:
    """The verdict on a conjunction, of which one part is enough to contradict it."""
    return next((one for one in (CONTRADICTED, NOT_MEASURED, NOT_SHOWN) if one in states), HOLDS)


def order(claim: Claim) -> Claim:
    """The statement without the sizes of differences: margins above zero and factors are left out.

    "DCCO is more than 4 points above FedAvg" becomes "DCCO is above FedAvg". Margins below zero,
    as in "at most 2 points below", stay.
    """
    contrasts = tuple(map(_order, claim.contrasts))
    if contrasts == claim.contrasts:
        return claim
    return dataclasses.replace(claim, text=f"{claim.text} (the order alone)", contrasts=contrasts)


def _order(contrast: Contrast) -> Contrast:
    weights, margin = contrast.weights, contrast.margin
    if len(weights) == 2 and sum(weights.values()) < 0 < max(weights.values()):
        weights = {figure: math.copysign(1, weight) for figure, weight in weights.items()}
    return Contrast(weights, min(margin, 0.0) if len(weights) > 1 else margin)


def has_learned(
    contrast: Contrast, found: Estimate | None, table: Table, values: TableValues
) -> bool:
    """Whether the figures of a contrast are above their untrained encoders, as far as it matters.

    The order of encoders that have learned nothing says nothing of their methods, and an untrained
    encoder loses nothing. So this has to be true of the upper side: the figures that are added if
    the mean is above the margin, and those that are subtracted otherwise. It has to be true, too,
    of a classifier that was trained on labels and is beaten by a probe: an untrained encoder would
    beat it as well otherwise.

    False if a probe's table has no untrained encoder, and no network from scratch, which is an
    untrained one that was fine-tuned. True of counts in such a table, and if the contrast compares
    an encoder before training itself.
    """
    own = table.selectors.items()
    starts = [row for row, one in own if one.baseline in _STARTS or one.protocol == "scratch"]
    untrained = [row for row in starts if table.selectors[row].baseline != "pretrained_encoder"]
    rows = {row for row, _ in contrast.weights}
    is_accuracy = table.selector.metric.endswith("accuracy")
    if found is None or rows.intersection(starts) or not (untrained or is_accuracy):
        return True
    sign = 1 if found.is_above else -1
    columns = {column for _, column in contrast.weights}
    is_rivalry = found.is_above and len(rows) == 2 and len(columns) == 1
    for (row, column), weight in contrast.weights.items():
        selector, is_upper = table.selectors.get(row, table.selector), weight * sign > 0
        is_classifier = selector.protocol in _OWN_CLASSIFIERS
        # Only probes on the upper side and, if they are beaten, classifiers on the lower one.
        if selector.baseline or is_upper == is_classifier or not (is_upper or is_rivalry):
            continue
        if not untrained:
            return False
        start = (table.starts.get(row, untrained[0]), column)
        gain = estimate(Contrast({(row, column): 1, start: -1}), table, values)
        if gain is None or not gain.interval()[0] > 0:
            return False
    return True


Checked = tuple[Claim, Table, TableValues]  # A statement, its table and the table's figures.


def check(claim: Claim, table: Table, values: TableValues) -> str:
    """The verdict on a statement, as one of `VERDICTS`."""
    return check_all([(claim, table, values)])


def check_all(statements: Iterable[Checked]) -> str:
    """The verdict on a claim that says all of some statements; see `decide`."""
    estimates, learned, _ = _estimates(statements)
    return decide(estimates, learned)


def check_each(statements: Iterable[Checked]) -> list[str]:
    """The verdicts on the statements of a claim, with Holm's correction over all of them."""
    estimates, learned, sizes = _estimates(statements)
    states = iter(_states(estimates, learned))
    return [_all_of([next(states) for _ in range(size)]) for size in sizes]


def _estimates(
    statements: Iterable[Checked],
) -> tuple[list[Estimate | None], list[bool], list[int]]:
    """What was measured of all contrasts, whether they can be decided, and numbers of contrasts."""
    estimates, learned, sizes = [], [], []
    for claim, table, values in statements:
        sizes.append(len(claim.contrasts))
        for contrast in claim.contrasts:
            estimates.append(estimate(contrast, table, values))
            learned.append(has_learned(contrast, estimates[-1], table, values))
    return estimates, learned, sizes


def deciding(statements: Iterable[Checked]) -> tuple[Checked, Contrast, Estimate, bool] | None:
    """The contrast on which the verdict of `check_all` depends most; None if none was measured.

    It is the one that is lowest beside its margin, in standard errors: the weakest of a claim that
    holds, and the one that contradicts the claim most otherwise. Contrasts that cannot be decided,
    because nothing was learned, come first; the last value is false for these.
    """
    found = [
        (checked, contrast, one, has_learned(contrast, one, *checked[1:]))
        for checked in statements
        for contrast in checked[0].contrasts
        if (one := estimate(contrast, *checked[1:])) is not None
    ]

    def rank(item) -> tuple[bool, float]:
        *_, one, learned = item
        distance = one.mean - one.margin
        return learned, distance / one.error if one.error else math.copysign(math.inf, distance)

    verdict = decide([one for *_, one, _ in found], [item[-1] for item in found])
    if verdict == CONTRADICTED:
        found = [item for item in found if item[-1]]
    return min(found, key=rank, default=None)


def rates(
    effects: Sequence[float], seeds: int, contrasts: int = 1, draws: int = 20_000, first: int = 0
) -> dict[float, tuple[float, float, float]]:
    """By simulation: the shares of holds, does not hold and not shown, by true mean.

    Args:
      effects: True means of all contrasts beyond their margins, in deviations of their numbers.
      seeds: Number of seeds, whose numbers are normal.
      contrasts: Number of contrasts of the statement, which are independent.
      draws: Number of simulated experiments for each mean.
      first: Number of seeds after which the others run only if nothing is shown; 0 if all run.
    """
    numbers, shares = np.random.default_rng(seeds).normal(size=(draws, contrasts, seeds)), {}
    for effect in effects:
        above, below = _decided(numbers + effect)
        if first:
            above_first, below_first = _decided(numbers[..., :first] + effect)
            above, below = above_first | above & ~below_first, below_first | below & ~above_first
        holds, contradicted = float(above.mean()), float(below.mean())
        shares[effect] = (holds, contradicted, 1 - holds - contradicted)
    return shares


def _decided(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers [draws, contrasts, seeds] -> whether the statement holds, and whether it does not."""
    from scipy import stats

    seeds = numbers.shape[2]
    distances = numbers.mean(axis=2) / (numbers.std(axis=2, ddof=1) / math.sqrt(seeds))
    p_values = 2 * stats.t.sf(np.abs(distances), seeds - 1)
    order = np.argsort(p_values, axis=1)
    steps = np.arange(numbers.shape[1], 0, -1) * np.take_along_axis(p_values, order, axis=1)
    is_decided = np.maximum.accumulate(steps, axis=1) < LEVEL
    is_above = np.take_along_axis(distances, order, axis=1) > 0
    return np.all(is_above & is_decided, axis=1), np.any(~is_above & is_decided, axis=1)
