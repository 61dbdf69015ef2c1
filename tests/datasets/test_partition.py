"""Partitions: completeness, sizes, seeds, limits, and distributions against closed forms."""

import functools
import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets import allocation, dirichlet_draws, partition, partitioners
from datasets.errors import DatasetError
from datasets.image_dataset import Split

CIFAR100_LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))

labels_strategy = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(np.array)
alphas = st.one_of(st.just(0.0), st.just(math.inf), st.floats(1e-300, 1e9))
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=150, deadline=None)


def as_split(labels, case_ids=None):
    count = len(labels)
    images = np.zeros((count, 1, 1, 1), np.uint8)
    return Split(images, np.asarray(labels, np.int32), np.arange(count), case_ids)


def assert_conserves(clients, count):
    assert all(len(indices) > 0 and indices.dtype == np.int64 for indices in clients)
    assert sorted(np.concatenate(clients).tolist()) == list(range(count))


def assert_uses_once(clients, count):
    used = np.concatenate(clients)
    assert len(set(used.tolist())) == len(used)
    assert used.min() >= 0
    assert used.max() < count


@quick
@given(labels_strategy, seeds, st.integers(1, 80))
def test_iid_by_size(labels, seed, size):
    size = min(size, len(labels))
    clients = partitioners.iid(labels, np.random.default_rng(seed), samples_per_client=size)
    assert_conserves(clients, len(labels))
    assert [len(c) for c in clients[:-1]] == [size] * (
        len(labels) // size - (len(labels) % size == 0)
    )


@quick
@given(labels_strategy, seeds, st.integers(1, 80))
def test_iid_by_number(labels, seed, count):
    count = min(count, len(labels))
    clients = partitioners.iid(labels, np.random.default_rng(seed), num_clients=count)
    assert_conserves(clients, len(labels))
    assert len(clients) == count
    assert max(map(len, clients)) - min(map(len, clients)) <= 1


@quick
@given(labels_strategy, seeds, alphas, st.integers(1, 20))
def test_dirichlet_conserves(labels, seed, alpha, size):
    size = min(size, len(labels))
    clients = partitioners.dirichlet(labels, np.random.default_rng(seed), alpha, size)
    assert_conserves(clients, len(labels))
    assert max(map(len, clients)) == size or alpha == 0
    if alpha > 0:
        assert all(len(indices) == size for indices in clients[:-1])


@quick
@given(labels_strategy, seeds, alphas, st.integers(1, 20), st.integers(1, 20))
def test_dirichlet_with_a_number_of_clients(labels, seed, alpha, size, count):
    size = min(size, len(labels))
    count = min(count, len(labels) // size)
    clients = partitioners.dirichlet(labels, np.random.default_rng(seed), alpha, size, count)
    assert len(clients) == count
    assert_uses_once(clients, len(labels))
    if alpha > 0:
        assert all(len(indices) == size for indices in clients)


@quick
@given(labels_strategy, seeds, st.integers(1, 20))
def test_dirichlet_alpha_zero_is_one_class_each(labels, seed, size):
    size = min(size, len(labels))
    clients = partitioners.dirichlet(labels, np.random.default_rng(seed), 0.0, size)
    assert all(len(set(labels[indices])) == 1 for indices in clients)
    counts = np.bincount(labels)
    assert len(clients) == sum(-(-int(n) // size) for n in counts)
    # Each class has at most one smaller client, and smaller clients come after the full ones.
    smaller = [k for k, indices in enumerate(clients) if len(indices) < size]
    assert len(smaller) == np.count_nonzero(counts % size)
    assert smaller == list(range(len(clients) - len(smaller), len(clients)))


def test_dirichlet_alpha_zero_draws_classes_by_what_remains():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    first = [
        labels[partitioners.dirichlet(labels, np.random.default_rng(seed), 0.0, 2)[0][0]]
        for seed in range(3000)
    ]
    np.testing.assert_allclose(np.bincount(first) / 3000, [0.6, 0.3, 0.1], atol=0.03)


@settings(max_examples=40, deadline=None)
@given(labels_strategy, seeds, alphas, st.integers(1, 80), st.booleans())
def test_dirichlet_per_class_conserves(labels, seed, alpha, count, balance):
    count = min(count, len(labels))
    rng = np.random.default_rng(seed)
    clients = partitioners.dirichlet_per_class(labels, rng, count, alpha, balance)
    assert len(clients) == count
    assert_conserves(clients, len(labels))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 5.0])
def test_dirichlet_per_class_has_the_variance_of_a_dirichlet(alpha):
    # Portions of Dir_K(alpha): mean 1/K, variance (1/K) (1 - 1/K) / (K alpha + 1).
    count, labels = 5, np.repeat(np.arange(10), 1000)
    portions = np.array(
        [
            np.bincount(labels[indices], minlength=10) / 1000
            for seed in range(200)
            for indices in partitioners.dirichlet_per_class(
                labels, np.random.default_rng(seed), count, alpha, balance_sizes=False
            )
        ]
    )
    assert portions.mean() == pytest.approx(1 / count)
    expected = (1 / count) * (1 - 1 / count) / (count * alpha + 1)
    np.testing.assert_allclose(portions.var(axis=0).mean(), expected, rtol=0.1)


@pytest.mark.parametrize("balance", [True, False])
def test_dirichlet_per_class_limits(balance):
    labels = np.repeat(np.arange(10), 500)
    rng = np.random.default_rng(0)
    whole = partitioners.dirichlet_per_class(labels, rng, 5, 0.0, balance)
    held = [np.bincount(labels[indices], minlength=10) for indices in whole]
    if balance:  # five even shares of two classes each
        assert [len(indices) for indices in whole] == [1000] * 5
    assert set(np.concatenate(held)) <= {0, 500, 250, 125}  # halves where a client got nothing
    even = partitioners.dirichlet_per_class(labels, rng, 5, math.inf, balance)
    assert all(np.all(np.bincount(labels[indices]) == 100) for indices in even)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(labels_strategy, seeds, alphas, st.integers(1, 20), st.integers(1, 9), st.booleans())
def test_no_client_is_below_the_smallest_size(labels, seed, alpha, count, smallest, balance):
    count = min(count, len(labels))
    smallest = min(smallest, len(labels) // count)
    settings = {"alpha": alpha, "num_clients": count, "balance_sizes": balance}
    split = as_split(labels)
    plain, filled = (
        partition.make("dirichlet_per_class", split, seed, min_client_size=least, **settings)
        for least in (1, smallest)
    )
    assert_conserves(filled, len(labels))
    before, after = (np.array([len(indices) for indices in one]) for one in (plain, filled))
    # Clients that are too small end with the smallest size, and only larger ones give examples.
    assert np.all(after[before < smallest] == smallest)
    assert np.all(after[before >= smallest] >= smallest)
    assert np.all(after[before >= smallest] <= before[before >= smallest])


def test_a_small_client_takes_from_the_largest_clients_largest_class():
    # Rows are classes, columns are clients with 1, 9, 8 and 2 examples.
    counts = np.array([[1, 5, 0, 2], [0, 4, 8, 0]])
    filled = dirichlet_draws._fill_small_clients(counts, 5)
    # Client 0 takes 4 of client 1's class 0, which leaves it 5 examples. Client 3 takes 3 of client
    # 2's class 1.
    assert filled.tolist() == [[5, 1, 0, 2], [0, 4, 5, 3]]
    assert dirichlet_draws._fill_small_clients(counts, 1).tolist() == counts.tolist()


@pytest.mark.long
@pytest.mark.slow
def test_twenty_clients_of_ten_classes_at_the_smallest_alpha_of_dec_ssl():
    # Figure 12 of Dec-SSL, where one of the first three seeds leaves a client a single image.
    split = as_split(np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000)))
    settings = {"alpha": 0.01, "num_clients": 20}
    sizes = {
        smallest: [
            min(map(len, partition.make(
                "dirichlet_per_class", split, seed, min_client_size=smallest, **settings
            )))
            for seed in range(3)
        ]
        for smallest in (1, 10)
    }  # fmt: skip
    assert min(sizes[1]) < 2
    assert min(sizes[10]) == 10
    clients = partition.make("dirichlet_per_class", split, 0, min_client_size=250, **settings)
    kept = partition.keep_fraction(clients, 0.04, 0)
    assert min(map(len, kept)) >= 10


@quick
@given(st.integers(1, 30), st.floats(0.01, 1.5))
def test_the_size_before_a_fraction_is_the_smallest_that_leaves_enough(size, fraction):
    expected = next(n for n in itertools.count(size) if round(min(fraction, 1) * n) >= size)
    assert partition.size_before_fraction(size, fraction) == (1 if size == 1 else expected)


@pytest.mark.parametrize("name", ["iid", "dirichlet"])
def test_random_sizes_start_from_the_smallest_size(name):
    split = as_split(np.arange(2000) % 10)
    settings = {"alpha": 1.0, "num_clients": 100, "random_sizes": True}
    clients = partition.make(name, split, 0, min_client_size=12, **settings)
    assert_conserves(clients, 2000)
    sizes = [len(indices) for indices in clients]
    assert 12 <= min(sizes) < 14
    # 12 and uniform shares of the other 800 images, from 0 to 16.
    assert np.std(sizes) == pytest.approx(16 / math.sqrt(12), rel=0.15)
    assert min(map(len, partition.make(name, split, 0, **settings))) < 12


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("iid", {"samples_per_client": 3}),  # The last client has the remainder.
        ("dirichlet", {"alpha": 0.0, "samples_per_client": 3}),
        ("skew", {"beta": 0.5, "num_clients": 7}),
        ("by_class", {"num_clients": 5, "classes_per_client": 2}),
        ("per_case", {}),
        ("dirichlet_per_class", {"alpha": 1.0, "num_clients": 5}),
    ],
)
def test_clients_below_the_smallest_size_are_refused(name, options):
    split = as_split(np.repeat(np.arange(5), 4), np.array([f"c{i % 7}" for i in range(20)], object))
    with pytest.raises(DatasetError, match="min_client_size"):
        partition.make(name, split, 0, min_client_size=5, **options)


@quick
@given(st.floats(0.05, 5), seeds)
def test_balanced_sizes_are_half_to_one_and_a_half_even_shares(alpha, seed):
    labels = np.repeat(np.arange(10), 50)
    clients = partitioners.dirichlet_per_class(labels, np.random.default_rng(seed), 5, alpha)
    assert all(50 <= len(indices) <= 150 for indices in clients)


@quick
@given(labels_strategy, seeds, st.integers(1, 20), st.floats(1e-9, 1), st.floats(1e-9, 1))
def test_keep_fraction_keeps_that_share_of_each_client(labels, seed, count, one, other):
    clients = partitioners.iid(labels, np.random.default_rng(0), min(count, len(labels)))
    small, large = (
        partition.keep_fraction(clients, fraction, seed) for fraction in sorted((one, other))
    )
    for fraction, kept in zip(sorted((one, other)), (small, large), strict=True):
        sizes = [max(1, round(fraction * len(indices))) for indices in clients]
        assert [len(indices) for indices in kept] == sizes
    for fewer, more, indices in zip(small, large, clients, strict=True):
        assert set(fewer.tolist()) <= set(more.tolist()) <= set(indices.tolist())
        assert len(np.unique(more)) == len(more)
    again = partition.keep_fraction(clients, max(one, other), seed)
    assert all(map(np.array_equal, large, again))


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, math.nan])
def test_keep_fraction_refuses_values_outside_0_to_1(fraction):
    with pytest.raises(DatasetError, match="data_fraction"):
        partition.keep_fraction([np.arange(3)], fraction, 0)


@quick
@given(labels_strategy, seeds, st.floats(0, 1), st.integers(1, 80))
def test_skew_conserves(labels, seed, beta, count):
    count = min(count, len(labels))
    clients = partitioners.skew(labels, np.random.default_rng(seed), count, beta)
    assert len(clients) == count
    assert_conserves(clients, len(labels))


@quick
@given(labels_strategy, seeds, st.integers(1, 80))
def test_skew_beta_zero_is_exclusive(labels, seed, count):
    count = min(count, len(labels))
    clients = partitioners.skew(labels, np.random.default_rng(seed), count, 0.0)
    held = [set(labels[indices]) for indices in clients]
    classes = set(labels.tolist())
    if count <= len(classes):
        assert sum(map(len, held)) == len(classes)
        assert {len(h) for h in held} <= {len(classes) // count, -(-len(classes) // count)}
    else:
        assert {len(h) for h in held} == {1}


@quick
@given(labels_strategy, seeds, st.integers(1, 80))
def test_skew_beta_one_is_even_in_every_class(labels, seed, count):
    count = min(count, len(labels))
    clients = partitioners.skew(labels, np.random.default_rng(seed), count, 1.0)
    assert max(map(len, clients)) - min(map(len, clients)) <= 1
    classes = len(np.unique(labels))
    for label in np.unique(labels):
        share = np.count_nonzero(labels == label) / count
        held = [np.count_nonzero(labels[indices] == label) for indices in clients]
        assert min(held) >= math.floor(share)
        assert max(held) <= math.floor(share) + classes


def test_skew_is_a_mixture_of_both():
    labels = np.repeat(np.arange(10), 500)
    clients = partitioners.skew(labels, np.random.default_rng(0), 5, 0.3)
    for indices in clients:
        counts = np.sort(np.bincount(labels[indices], minlength=10))
        # Each client has a fifth of 30 % of each class, and 70 % of two classes.
        assert counts.tolist() == [30] * 8 + [380] * 2


@quick
@given(labels_strategy, seeds, st.integers(1, 12), st.integers(1, 7))
def test_by_class(labels, seed, count, per_client):
    classes, sizes = np.unique(labels, return_counts=True)
    per_client = min(per_client, len(classes))
    rng = np.random.default_rng(seed)
    if count * per_client < len(classes):
        with pytest.raises(DatasetError, match="num_clients"):
            partitioners.by_class(labels, rng, count, per_client)
        return
    holders = -(-count * per_client // len(classes))
    if sizes.min() < holders:
        return
    clients = partitioners.by_class(labels, rng, count, per_client)
    assert_conserves(clients, len(labels))
    assert [len(set(labels[indices])) for indices in clients] == [per_client] * count
    for label in classes:
        held = [np.count_nonzero(labels[indices] == label) for indices in clients]
        held = [n for n in held if n]
        assert len(held) in (count * per_client // len(classes), holders)
        assert max(held) - min(held) <= 1


def test_by_class_as_in_fedu_is_exclusive():
    labels = np.repeat(np.arange(10), 20)
    clients = partitioners.by_class(labels, np.random.default_rng(1), 5, 2)
    held = [tuple(np.unique(labels[indices])) for indices in clients]
    assert sorted(itertools.chain(*held)) == list(range(10))
    assert [len(indices) for indices in clients] == [40] * 5


@pytest.mark.parametrize("count", [10, 100])
def test_by_class_with_one_class_each(count):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    options = {"num_clients": count, "classes_per_client": 1}
    clients = partition.make("by_class", as_split(labels), 0, **options)
    assert_conserves(clients, 50_000)
    assert [len(indices) for indices in clients] == [50_000 // count] * count
    held = [np.unique(labels[indices]).tolist() for indices in clients]
    assert sorted(held) == sorted([[c] for c in range(10)] * (count // 10))


@pytest.mark.parametrize("name", partition.CLUSTER_PARTITIONS)
def test_feature_clusters_are_allocated_like_classes(name):
    clusters = np.random.default_rng(0).integers(0, 5, 2000)
    options = {"num_clients": 5, "alpha": 1e-9, "beta": 0.0}
    unlabelled = as_split(np.full(2000, -1))
    clients = partition.make(
        "feature_clusters", unlabelled, 0, cluster_ids=clusters, cluster_partition=name, **options
    )
    assert_conserves(clients, 2000)
    shares = [np.bincount(clusters[indices]).max() / len(indices) for indices in clients]
    assert min(shares) > 0.75
    again = partition.make(
        "feature_clusters", unlabelled, 0, cluster_ids=clusters, cluster_partition=name, **options
    )
    assert all(map(np.array_equal, clients, again))


def test_per_case_is_one_client_per_case():
    cases = np.array(["b", "a", "b", "c", "a", "b"], object)
    clients = partitioners.per_case(cases)
    assert [indices.tolist() for indices in clients] == [[1, 4], [0, 2, 5], [3]]


@pytest.mark.parametrize("alpha", [0.05, 1.0, 30.0])
def test_dirichlet_has_the_variance_of_a_dirichlet_multinomial(alpha):
    # For n ~ Multinomial(m, q), q ~ Dir(alpha p): Var(n_c / m) =
    # p_c (1 - p_c) (1/m + (1 - 1/m) / (alpha + 1)), and the mean is p_c.
    prior, size, clients_per_draw = np.array([0.5, 0.3, 0.15, 0.05]), 20, 20
    labels = np.repeat(np.arange(4), (prior * 40_000).astype(int))
    shares = np.array(
        [
            np.bincount(labels[indices], minlength=4) / size
            for seed in range(200)
            for indices in partitioners.dirichlet(
                labels, np.random.default_rng(seed), alpha, size, clients_per_draw
            )
        ]
    )
    np.testing.assert_allclose(shares.mean(axis=0), prior, atol=0.03)
    expected = prior * (1 - prior) * (1 / size + (1 - 1 / size) / (alpha + 1))
    np.testing.assert_allclose(shares.var(axis=0), expected, rtol=0.15)


def one_by_one(labels, rng, alpha, size):
    """Reference for the process of Hsu et al., which draws one example at a time."""
    left = np.bincount(labels)
    prior = left / left.sum()
    clients = []
    while left.sum():
        mixture = rng.dirichlet(alpha * prior)
        counts = np.zeros(len(left), int)
        for _ in range(min(size, left.sum())):
            weights = mixture * (left > 0)
            label = rng.choice(len(left), p=weights / weights.sum())
            counts[label] += 1
            left[label] -= 1
        clients.append(tuple(counts))
    return tuple(clients)


@pytest.mark.long
@pytest.mark.slow
def test_dirichlet_renormalizes_like_drawing_one_by_one():
    labels, draws = np.array([0, 0, 0, 1, 1, 2]), 4000

    def class_counts(rng):
        clients = partitioners.dirichlet(labels, rng, 1.0, 2)
        return tuple(tuple(np.bincount(labels[indices], minlength=3)) for indices in clients)

    outcomes = [class_counts(np.random.default_rng(seed)) for seed in range(draws)]
    rng = np.random.default_rng(99)
    expected = [one_by_one(labels, rng, 1.0, 2) for _ in range(draws)]
    for outcome in set(outcomes) | set(expected):
        # The tolerance is four standard deviations of the difference of two frequencies.
        share = (outcomes.count(outcome) + expected.count(outcome)) / (2 * draws)
        tolerance = 4 * math.sqrt(2 * share * (1 - share) / draws)
        assert abs(outcomes.count(outcome) - expected.count(outcome)) / draws <= tolerance


@pytest.mark.parametrize("alpha", [1e6, math.inf])
def test_dirichlet_of_large_alpha_is_near_uniform(alpha):
    clients = partitioners.dirichlet(CIFAR100_LABELS, np.random.default_rng(0), alpha, 2500)
    counts = np.array([np.bincount(CIFAR100_LABELS[c], minlength=100) for c in clients])
    # The count of a class in a client is nearly binomial, with an expectation of 25.
    assert abs(counts[:10].mean() - 25) < 1e-9
    assert 0.7 < counts[:10].var() / (2500 * 0.01 * 0.99) < 1.3


def test_dirichlet_of_tiny_alpha_is_almost_one_class_each():
    clients = partitioners.dirichlet(CIFAR100_LABELS, np.random.default_rng(0), 1e-320, 5)
    classes = np.array([len(np.unique(CIFAR100_LABELS[indices])) for indices in clients])
    assert_conserves(clients, 50_000)
    assert np.all(classes == 1)  # 5 divides 500, so no client meets a class that runs out


def many_settings():
    return [
        ("iid", {"samples_per_client": 1}),
        ("iid", {"num_clients": 5}),
        ("dirichlet", {"alpha": 0.0, "samples_per_client": 1}),
        pytest.param("dirichlet", {"alpha": 0.1, "samples_per_client": 1}, marks=pytest.mark.long),
        ("dirichlet", {"alpha": 1000.0, "samples_per_client": 4}),
        ("dirichlet", {"alpha": 0.5, "num_clients": 5}),
        ("dirichlet_per_class", {"alpha": 0.1, "num_clients": 5}),
        pytest.param(
            "dirichlet_per_class", {"alpha": 0.01, "num_clients": 100}, marks=pytest.mark.long
        ),
        ("dirichlet_per_class", {"alpha": 0.0, "num_clients": 50_000, "balance_sizes": False}),
        ("skew", {"beta": 0.0, "num_clients": 50_000}),
        ("skew", {"beta": 0.5, "num_clients": 100}),
        ("by_class", {"num_clients": 50_000, "classes_per_client": 1}),
        ("by_class", {"num_clients": 12_500, "classes_per_client": 2}),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), many_settings())
def test_cifar100_is_partitioned_quickly_and_completely(name, options):
    started = time.perf_counter()
    clients = partition.make(name, as_split(CIFAR100_LABELS), 0, **options)
    print(f"{name} {options}: {len(clients)} clients, {time.perf_counter() - started:.2f} s")
    assert_conserves(clients, 50_000)


@pytest.mark.parametrize(("name", "options"), many_settings()[1:3] + many_settings()[4:7])
def test_partition_depends_on_the_seed(name, options):
    split = as_split(CIFAR100_LABELS[:4000])
    first, again, other = (partition.make(name, split, s, **options) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(map(np.array_equal, first, other))


def test_names_draw_from_different_streams():
    split = as_split(np.arange(1000) % 10)
    same = partition.make("iid", split, 0, samples_per_client=4)
    limit = partition.make("dirichlet", split, 0, alpha=math.inf, samples_per_client=4)
    assert not all(map(np.array_equal, same, limit))


def test_default_size_is_four():
    assert len(partition.make("iid", as_split(np.zeros(40)), 0)) == 10


@pytest.mark.parametrize(
    ("name", "options", "flag"),
    [
        ("dirichlet", {"alpha": -1.0}, "alpha"),
        ("dirichlet", {"alpha": math.nan}, "alpha"),
        ("dirichlet", {"samples_per_client": 0}, "samples_per_client"),
        ("dirichlet", {"alpha": 1.0, "samples_per_client": 0}, "samples_per_client"),
        ("dirichlet", {"samples_per_client": 21}, "samples_per_client"),
        ("dirichlet", {"alpha": 1.0, "num_clients": 6, "samples_per_client": 4}, "num_clients"),
        ("dirichlet", {"alpha": 0.0, "num_clients": 9, "samples_per_client": 4}, "num_clients"),
        ("dirichlet", {"alpha": 0.0, "num_clients": 3}, "num_clients"),
        ("dirichlet_per_class", {"alpha": -1.0, "num_clients": 2}, "alpha"),
        ("dirichlet_per_class", {"alpha": 1.0}, "num_clients"),
        ("dirichlet_per_class", {"alpha": 1.0, "num_clients": 21}, "num_clients"),
        ("feature_clusters", {"num_clients": 2}, "cluster_encoder"),
        ("feature_clusters", {"num_clients": 2, "cluster_ids": np.zeros(3, int)}, "cluster_ids"),
        ("iid", {"num_clients": 0}, "num_clients"),
        ("iid", {"num_clients": 21}, "num_clients"),
        ("iid", {"num_clients": 6, "samples_per_client": 4}, "num_clients"),
        ("skew", {"beta": 1.5, "num_clients": 2}, "beta"),
        ("skew", {"beta": math.nan, "num_clients": 2}, "beta"),
        ("skew", {"num_clients": 2}, "beta"),
        ("skew", {"beta": 0.5}, "num_clients"),
        ("skew", {"beta": 0.5, "num_clients": 21}, "num_clients"),
        ("by_class", {"num_clients": 5, "classes_per_client": 5}, "classes_per_client"),
        ("by_class", {"num_clients": 5, "classes_per_client": 0}, "classes_per_client"),
        ("by_class", {"num_clients": 1, "classes_per_client": 2}, "num_clients"),
        ("by_class", {"num_clients": 20, "classes_per_client": 2}, "num_clients"),
        ("per_case", {}, "partition=per_case needs cases or clients, and the data names none"),
        ("nosuch", {}, "partition"),
    ],
)
def test_impossible_settings_name_the_flag(name, options, flag):
    with pytest.raises(DatasetError, match=flag) as caught:
        partition.make(name, as_split(np.arange(20) % 4), 0, **options)
    assert "\n" not in str(caught.value)


def test_negative_seed_is_refused():
    with pytest.raises(DatasetError, match="seed"):
        partition.make("iid", as_split(np.zeros(4)), -1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dirichlet", {"alpha": 0.0}),
        ("dirichlet", {"alpha": 1.0}),
        ("skew", {"beta": 0.5, "num_clients": 2}),
        ("by_class", {"num_clients": 2, "classes_per_client": 1}),
    ],
)
def test_unlabelled_data_needs_another_partition(name, options):
    split = as_split([0, 1, -1, 0, 1, 0])
    with pytest.raises(DatasetError, match=r"labels.*1 of 6"):
        partition.make(name, split, 0, **options)
    assert_conserves(partition.make("iid", split, 0, num_clients=2), 6)


@quick
@given(labels_strategy, seeds, st.integers(1, 80))
def test_random_sizes_use_every_example_and_leave_no_client_empty(labels, seed, count):
    count = min(count, len(labels))
    dirichlet = functools.partial(partitioners.dirichlet, alpha=0.5, samples_per_client=None)
    for function in (partitioners.iid, dirichlet):
        clients = function(
            labels, rng=np.random.default_rng(seed), num_clients=count, random_sizes=True
        )
        assert_conserves(clients, len(labels))
        assert len(clients) == count
        assert min(map(len, clients)) >= 1


def test_random_sizes_are_uniform_shares():
    rng = np.random.default_rng(0)
    sizes = np.concatenate([allocation.random_sizes(20_000, 100, rng) for _ in range(20)])
    # Shares are uniform from 0 to 400, with a mean of 200 and a deviation of 400 / sqrt(12).
    assert np.mean(sizes) == 200
    assert np.std(sizes) == pytest.approx(115, rel=0.06)
    with pytest.raises(DatasetError, match="random_sizes needs num_clients"):
        partitioners.iid(np.zeros(9, int), rng, samples_per_client=3, random_sizes=True)
    with pytest.raises(DatasetError, match="random_sizes needs alpha above 0"):
        partitioners.dirichlet(np.zeros(9, int), rng, 0.0, None, 2, random_sizes=True)
    with pytest.raises(DatasetError, match="num_clients must be at most 9"):
        partitioners.iid(np.zeros(9, int), rng, 10, random_sizes=True)
