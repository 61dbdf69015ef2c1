"""Verdicts from figures by seed, against tests of SciPy and calculations by hand."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from tff_ssl.reporting import verdicts
from tff_ssl.reporting.experiment import Claim, Contrast, Table
from tff_ssl.reporting.measured import Selector, Value, select
from tff_ssl.reporting.records import Run

A, B = ("a", "0"), ("b", "0")
ABOVE = (Contrast({A: 1, B: -1}),)


def value(*figures, failed=0):
    """A figure of seeds 0, 1, ..., of which the last ones may have failed."""
    by_seed = dict(enumerate([*figures, *[None] * failed]))
    mean = statistics.mean(figures) if figures else math.nan
    deviation = statistics.stdev(figures) if len(figures) > 1 else 0.0
    return Value(mean, deviation, len(figures), failed, by_seed)


def around(mean, *steps):
    return value(*(mean + step for step in steps or (-0.01, 0.0, 0.01)))


def make_table(figures, untrained=(), metric="agreement", starts=None, **protocols):
    """A table with the figures {row: (one of each column)} of columns 0, 1, ..., and its values.

    Accuracies have to be above those of untrained rows; an agreement is any other share.
    """
    selectors = {row: Selector("linear", baseline="random_encoder") for row in untrained}
    selectors |= {row: Selector(name) for name, rows in protocols.items() for row in rows}
    columns = tuple(map(str, range(max(map(len, figures.values())))))
    table = Table("T", Selector("linear", metric=metric), columns, dict.fromkeys(figures, ()), {},
                  selectors, metric != "models", starts or {})  # fmt: skip
    values = {(row, str(i)): one for row, cells in figures.items() for i, one in enumerate(cells)}
    return table, values


def verdict(contrasts, figures, **options):
    return verdicts.check(Claim("", "T", contrasts), *make_table(figures, **options))


def estimate(contrast, figures):
    return verdicts.estimate(contrast, *make_table(figures))


def test_differences_are_paired_by_seed():
    """A difference that is the same with each seed counts, however much the seeds differ."""
    a, b = (0.53, 0.63, 0.734), (0.5, 0.601, 0.7)
    found = estimate(ABOVE[0], {"a": [value(*a)], "b": [value(*b)]})
    expected = stats.ttest_rel(a, b)
    assert found.p_value() == pytest.approx(expected.pvalue)
    differences = np.subtract(a, b)
    interval = stats.t.interval(0.95, 2, differences.mean(), stats.sem(differences))
    assert found.interval() == pytest.approx(interval)
    assert verdict(ABOVE, {"a": [value(*a)], "b": [value(*b)]}) == "holds"
    # The same figures with the seeds of one row in another order.
    assert verdict(ABOVE, {"a": [value(*a)], "b": [value(b[1], b[2], b[0])]}) == "not shown"


def test_accuracies_whose_differences_are_equal_by_chance_are_not_certain():
    """They are multiples of one by the number of test images; a tenth of a point is assumed."""
    table, values = make_table(
        {"a": [value(0.71, 0.74)], "b": [value(0.70, 0.73)]}, metric="accuracy"
    )
    found = verdicts.estimate(ABOVE[0], table, values)
    half = stats.t.ppf(0.975, 1) * 0.001 / math.sqrt(2)
    assert found.interval() == pytest.approx((0.01 - half, 0.01 + half))
    assert found.p_value() == pytest.approx(2 * stats.t.sf(0.01 / (0.001 / math.sqrt(2)), 1))


def test_only_seeds_that_all_figures_have_count():
    a, b = value(0.5, 0.6, 0.7), value(0.4, 0.5)
    assert estimate(ABOVE[0], {"a": [a], "b": [b]}).freedom == 1
    other = b._replace(by_seed={7: 0.4})
    assert verdict(ABOVE, {"a": [a], "b": [other]}) == "not measured"


@pytest.mark.parametrize(
    ("margin", "expected"), [(0.0, "holds"), (0.03, "not shown"), (0.06, "does not hold")]
)
def test_the_interval_is_compared_with_the_margin(margin, expected):
    figures = {"a": [around(0.53, 0.001, 0.0, 0.004)], "b": [around(0.5, 0.0, 0.001, 0.002)]}
    assert verdict((Contrast({A: 1, B: -1}, margin),), figures) == expected


def test_means_and_deviations_alone_have_welchs_interval():
    a, b = (0.53, 0.55, 0.54, 0.56), (0.5, 0.49, 0.52)
    figures = {"a": [value(*a)._replace(by_seed={})], "b": [value(*b)]}
    found = estimate(ABOVE[0], figures)
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert found.p_value() == pytest.approx(expected.pvalue)
    assert not found.is_paired


def test_one_seed_decides_nothing_but_bytes():
    figures = {"a": [value(0.9)], "b": [value(0.1)]}
    assert verdict(ABOVE, figures) == "not shown"
    assert verdict(ABOVE, figures, metric="effective_rank") == "not shown"
    assert verdict(ABOVE, figures, metric="megabytes") == "holds"
    kept = {row: [one[0]._replace(by_seed={})] for row, one in figures.items()}
    assert verdict(ABOVE, kept) == "not shown"


def test_a_figure_that_was_not_measured_leaves_the_claim_open():
    figures = {"a": [around(0.53)], "b": [value()]}
    assert verdict(ABOVE, figures) == "not measured"
    # One contrast is enough to contradict a claim of several.
    both = (*ABOVE, Contrast({("c", "0"): 1, A: -1}))
    assert verdict(both, figures | {"c": [around(0.3)]}) == "does not hold"
    assert verdict(both, figures | {"c": [around(0.7)]}) == "not measured"


def test_a_failed_training_has_no_baselines_and_loses_nothing():
    """Its untrained encoder is not at 0, and neither is what its accuracy has lost."""
    entry = {"protocol": "linear", "labels": 10, "accuracy": 0.4,
             "baselines": {"random_encoder": {"accuracy": 0.3}}}  # fmt: skip
    done = Run("done", {"result": [entry]}, {"knn": [[1, 0.5], [2, 0.4]]})
    runs = {0: done, 1: Run("failed", {}, {}, {"reason": "diverged"})}
    assert select(runs, Selector("linear")).by_seed == {0: 0.4, 1: None}
    assert select(runs, Selector("linear", baseline="random_encoder")).by_seed == {0: 0.3}
    figures = {"a": [value(0.05, 0.06)], "b": [value(failed=2)]}
    assert verdict(ABOVE, figures, metric="knn_lost") == "not measured"


def test_a_failed_training_is_an_accuracy_of_zero_and_no_count():
    failed = value(failed=3)
    assert verdict(ABOVE, {"a": [around(0.5)], "b": [failed]}) == "holds"
    assert verdict(ABOVE, {"a": [around(50)], "b": [failed]}, metric="models") == "not measured"
    some = estimate(ABOVE[0], {"a": [value(0.9, 0.8, failed=1)], "b": [around(0.5)]})
    differences = (0.9 - 0.49, 0.8 - 0.5, 0.0 - 0.51)
    assert some.mean == pytest.approx(statistics.mean(differences))
    assert some.error == pytest.approx(statistics.stdev(differences) / math.sqrt(3))


def test_holms_correction_is_that_of_its_definition():
    p_values = [0.04, 0.001, 0.02, 0.5]
    # 4 * 0.001; 3 * 0.02; 2 * 0.04, at least 3 * 0.02; 0.5.
    assert verdicts.holm(p_values) == pytest.approx([0.08, 0.004, 0.06, 0.5])
    assert verdicts.holm([]) == []


def test_several_contrasts_need_holms_correction_on_both_sides():
    """Contrasts with p = 0.03: one is shown alone, two are not together."""
    steps = np.array([-1, 0, 1]) * 0.01
    error = 0.01 / math.sqrt(3)
    t = float(stats.t.isf(0.015, 2)) * error
    shifted = [value(*(0.5 + t + steps)), value(0.5, 0.5, 0.5)]
    pair = (Contrast({("a", "0"): 1, ("a", "1"): -1}), Contrast({("b", "0"): 1, ("b", "1"): -1}))
    both, reverse = {"a": shifted, "b": shifted}, {"a": shifted[::-1], "b": shifted[::-1]}
    assert (verdict(pair, both), verdict(pair, reverse)) == ("not shown", "not shown")
    assert verdict(pair[:1], both) == "holds"
    assert verdict(pair[:1], reverse) == "does not hold"
    # The statements of a claim are corrected together, and agree with the claim.
    table, values = make_table(both)
    statements = [(Claim("", "T", (one,)), table, values) for one in pair]
    assert verdicts.check_each(statements) == ["not shown", "not shown"]
    assert verdicts.check_all(statements) == "not shown"
    assert verdicts.check_all(statements[:1]) == "holds"


def test_the_upper_side_has_to_be_above_its_untrained_encoder():
    def result(untrained, a=0.53, b=0.5, contrasts=ABOVE, **options):
        figures = {"a": [value(a, a, a + 0.001)], "b": [value(b, b + 0.001, b)],
                   "u": [value(untrained, untrained, untrained - 0.001)]}  # fmt: skip
        return verdict(contrasts, figures, untrained=["u"], **options)

    assert result(0.45) == "holds"
    assert result(0.51) == "holds"
    assert result(0.53) == "not shown"
    assert result(0.45, a=0.4) == "does not hold"  # The other one has learned.
    assert result(0.6, a=0.4) == "not shown"
    assert result(0.6, supervised=["a"]) == "holds"  # A classifier is no probe.
    # The claim may be about the untrained encoder.
    assert result(0.6, contrasts=(Contrast({("u", "0"): 1, A: -1}),)) == "holds"
    # A classifier below an untrained encoder is beaten by a probe without training; a probe below
    # it has got worse by training. A fall of the classifier may end anywhere.
    assert result(0.49, supervised=["b"]) == "holds"
    assert result(0.51, supervised=["b"]) == "not shown"
    fall = {"a": [around(0.7), around(0.7)], "b": [around(0.6), around(0.3)],
            "u": [around(0.5), around(0.5)]}  # fmt: skip
    less = Contrast({("b", "0"): 1, ("b", "1"): -1, ("a", "1"): 1, ("a", "0"): -1})
    assert verdict((less,), fall, untrained=["u"], supervised=["b"]) == "holds"


def test_accuracies_without_an_untrained_encoder_decide_nothing():
    figures = {"a": [value(0.6, 0.601, 0.6)], "b": [value(0.5, 0.5, 0.501)]}
    assert verdict(ABOVE, figures) == "holds"
    assert verdict(ABOVE, figures, metric="accuracy") == "not shown"
    assert verdict(ABOVE, figures, metric="accuracy", supervised=["a"]) == "holds"
    # A network from scratch is an untrained one that was fine-tuned.
    tuned = {"metric": "accuracy", "scratch": ["s"]}
    assert verdict(ABOVE, figures | {"s": [value(0.4, 0.401, 0.4)]}, **tuned) == "holds"
    assert verdict(ABOVE, figures | {"s": [value(0.7, 0.701, 0.7)]}, **tuned) == "not shown"


def test_the_order_of_a_statement_leaves_out_margins_and_factors():
    claim = Claim("a is above b", "T", (
        Contrast({A: 1, B: -1}, 0.04), Contrast({A: 1, B: -9}), Contrast({A: 1, B: -1}, -0.02),
        Contrast({A: 2.5, B: -1}), Contrast({A: 1}, 0.3),
    ))  # fmt: skip
    of_order = verdicts.order(claim)
    above = {A: 1, B: -1}
    assert [(one.weights, one.margin) for one in of_order.contrasts] == [
        (above, 0), (above, 0), (above, -0.02), ({A: 2.5, B: -1}, 0), ({A: 1}, 0.3),
    ]  # fmt: skip
    assert of_order.text == "a is above b (the order alone)"
    assert verdicts.order(of_order) is of_order


def test_a_row_is_compared_with_the_untrained_encoder_that_it_started_with():
    figures = {"a": [around(0.53)], "b": [value(0.5, 0.51, 0.5)], "small": [value(0.4, 0.4, 0.41)],
               "large": [value(0.56, 0.55, 0.55)]}  # fmt: skip
    untrained = ["small", "large"]
    steady = figures | {"a": [value(0.53, 0.54, 0.532)]}
    assert verdict(ABOVE, steady, untrained=untrained) == "holds"
    assert verdict(ABOVE, steady, untrained=untrained, starts={"a": "large"}) == "not shown"


def test_the_deciding_contrast_is_the_weakest_or_the_one_that_contradicts():
    pair = (Contrast({A: 1, B: -1}), Contrast({A: 1, ("c", "0"): -1}))
    claim = Claim("", "T", pair)
    figures = {"a": [value(0.5, 0.501, 0.5)], "b": [value(0.4, 0.4, 0.401)]}
    for c, expected in ((0.47, 1), (0.6, 1), (0.1, 0)):
        checked = (claim, *make_table(figures | {"c": [value(c, c, c + 0.001)]}))
        _, contrast, _, _ = verdicts.deciding([checked])
        assert contrast is pair[expected], c
    assert verdicts.deciding([(claim, *make_table({row: [value()] for row in "abc"}))]) is None


def test_seeds_that_run_only_where_the_first_show_nothing_are_a_second_chance():
    random, counts = np.random.default_rng(7), {True: 0, False: 0}
    for _ in range(2000):
        numbers = random.normal(0.5, 1.0, size=5)
        for seeds in (3, 5):
            test = stats.ttest_1samp(numbers[:seeds], 0.0)
            if test.pvalue < 0.05:
                counts[bool(test.statistic > 0)] += 1
                break
    holds, contradicted, _ = verdicts.rates((0.5,), 5, first=3)[0.5]
    assert (holds, contradicted) == pytest.approx(
        (counts[True] / 2000, counts[False] / 2000), abs=0.03
    )
    assert holds > verdicts.rates((0.5,), 5)[0.5][0] + 0.01


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_error_rates_and_power_are_those_of_the_t_test(seeds):
    found = verdicts.rates((0.0, 2.0), seeds)
    assert found[0.0][:2] == pytest.approx((0.025, 0.025), abs=0.004)
    quantile = stats.t.ppf(0.975, seeds - 1)
    power = stats.nct.sf(quantile, seeds - 1, 2 * math.sqrt(seeds))
    assert found[2.0][0] == pytest.approx(power, abs=0.012)
    assert all(sum(shares) == pytest.approx(1) for shares in found.values())
    # Of two contrasts, both have to hold, one of them at half of the level. One of four contradicts
    # at a quarter of the level.
    half = stats.nct.sf(stats.t.isf(0.0125, seeds - 1), seeds - 1, 2 * math.sqrt(seeds))
    several = verdicts.rates((0.0, 2.0), seeds, contrasts=2)
    assert several[2.0][0] == pytest.approx(half * (2 * power - half), abs=0.012)
    several = verdicts.rates((0.0, 2.0), seeds, contrasts=4)
    assert several[0.0][0] < 0.001
    assert several[0.0][1] == pytest.approx(1 - (1 - 0.025 / 4) ** 4, abs=0.004)
