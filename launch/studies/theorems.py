"""Checks theorems of the papers numerically, on their own assumptions.

    python -m launch.studies.theorems

- DeNAV, Theorem 1: for linear encoder and decoder, the model that minimizes the loss of
  reconstructing the images X of some clients from corrupted images X~ is
  W = X X~^T (X~ X~^T)^-1. Compared with gradient descent.
- DeNAV, Corollary 1: the loss of a step depends mainly on the number of its clients' images.
  Compared are clients of all classes and of two classes of scikit-learn's digits, with 20 and with
  80 images each, on test images of all classes.
- Hetero-SSFL, Lemmas 4.5 and 4.6 and Theorem 4.7: bounds on a client's loss after E local steps,
  after the update of the representations that follows, and after both, and conditions with which
  the loss falls. Tried with embeddings x -> w x of one image, where all constants of the
  assumptions are known.
"""

from typing import NamedTuple

import numpy as np

_MASKED = 0.75  # Share of the pixels that a masked autoencoder does not see.


def best_map(images: np.ndarray, corrupted: np.ndarray, ridge: float = 0.0) -> np.ndarray:
    """Theorem 1's W, with an image a column; the pseudoinverse where there is no inverse.

    Args:
      images, corrupted: Arrays of shape (pixels, images).
      ridge: Weight of the squared norm of W, which is added to the squared error.
    """
    moments = corrupted @ corrupted.T + ridge * np.eye(len(corrupted))
    return images @ corrupted.T @ np.linalg.pinv(moments, hermitian=True)


def descend(images: np.ndarray, corrupted: np.ndarray, steps: int) -> np.ndarray:
    """The same by gradient descent on the mean squared error, from zero."""
    moments, crossed = corrupted @ corrupted.T, images @ corrupted.T
    rate, found = 1 / np.linalg.norm(moments, 2), np.zeros_like(crossed)
    for _ in range(steps):
        found = found - rate * (found @ moments - crossed)
    return found


def theorem_1(draws: int = 100, dimensions: int = 16) -> float:
    """The largest relative distance of the formula from gradient descent over some draws."""
    distances = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        clients = [rng.normal(size=(dimensions, n)) for n in rng.integers(20, 200, size=5)]
        images = np.concatenate(clients, axis=1)
        corrupted = images * (rng.random(images.shape) > 0.5)
        formula = best_map(images, corrupted)
        found = descend(images, corrupted, 2000)
        distances.append(np.linalg.norm(found - formula) / np.linalg.norm(formula))
    return float(max(distances))


def printed_inverses(draws: int = 100) -> int:
    """The number of draws in which Theorem 1's inverse exists for the matrices that are printed.

    A column has a number for each image of a client, and zeros up to the largest client.
    """
    found = 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(20, 200, size=5)
        printed = np.stack([np.pad(rng.normal(size=n), (0, max(sizes) - n)) for n in sizes], axis=1)
        found += int(np.linalg.matrix_rank(printed @ printed.T) == len(printed))
    return found


def corollary_1(clients: int, kind: str, size: int, seed: int) -> tuple[float, float]:
    """Test losses of the best map of one step's clients, and of their mean image as a constant.

    The loss is the mean squared error on masked test images of all classes, divided by the
    variance of the pixels. Each image of a client is masked in 16 ways, as in 16 epochs. A linear
    map without a constant and a ridge loses to the mean image, so that the maps have both; the
    ridge is the best one on other images of all classes.

    Args:
      clients: Number of clients in the step; they have no class in common if they have two each.
      kind: Classes of a client, `all classes` or `two classes`.
      size: Number of images of a client.
      seed: Seed of images, classes and masks.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.data.T / 16, digits.target
    rng = np.random.default_rng(seed)
    test, choice, pool = np.split(rng.permutation(len(labels)), (400, 700))
    chosen = pool[: clients * size]
    if kind == "two classes":
        pairs = rng.permutation(10).reshape(5, 2)[:clients]
        chosen = np.concatenate([pool[np.isin(labels[pool], pair)][:size] for pair in pairs])

    def masked(some: np.ndarray) -> np.ndarray:
        return some * (rng.random(some.shape) > _MASKED)

    own = np.repeat(images[:, chosen], 16, axis=1)
    seen = masked(own)
    mean, mean_seen = own.mean(axis=1, keepdims=True), seen.mean(axis=1, keepdims=True)
    seen_of = {"choice": masked(images[:, choice]), "test": masked(images[:, test])}

    def loss(found: np.ndarray, name: str) -> float:
        wrong = mean + found @ (seen_of[name] - mean_seen)
        wrong -= images[:, choice if name == "choice" else test]
        return float(np.mean(wrong**2) / np.mean(images.var(axis=1)))

    ridges = own.shape[1] * 10.0 ** np.arange(-5, 2)
    maps = [best_map(own - mean, seen - mean_seen, ridge) for ridge in ridges]
    best = min(maps, key=lambda found: loss(found, "choice"))
    return loss(best, "test"), loss(np.zeros_like(best), "test")


class Round(NamedTuple):
    """A client's losses in a round, and the printed bounds on their changes."""

    before: float
    after_steps: float
    after_update: float  # Of the representations.
    fall: float  # By which Lemma 4.5 says that the steps lower the loss, at least.
    rise: float  # By which Lemma 4.6 says that the update raises it, at most.

    def failures(self) -> tuple[bool, bool, bool]:
        """Whether Lemma 4.5, Lemma 4.6 and Theorem 4.7 fail by more than rounding."""
        after_steps = self.before - self.fall
        return (
            self.after_steps > after_steps + 1e-12,
            self.after_update > self.after_steps + self.rise + 1e-12,
            self.after_update > after_steps + self.rise + 1e-12,
        )

    @property
    def is_guaranteed(self) -> bool:
        """Whether Theorem 4.7's conditions on the rate and mu hold, so that the loss should fall.

        Without noise, they say that the fall of Lemma 4.5 is larger than the rise of Lemma 4.6.
        """
        return self.fall > self.rise


def hetero_round(steps: int, rng: np.random.Generator) -> Round:
    """A round of E local steps of equal clients, whose loss is -a w + mu w^2 K.

    Embeddings are w x with x = 1, so that K is the mean of the clients' w^2. Gradients are exact
    (sigma = 0), L = 1 and L_2 = 1. The other constants are the smallest that the round allows.
    """
    rate, mu = 10 ** rng.uniform(-4, -2), 10 ** rng.uniform(-4, 1)
    slope, w = rng.uniform(0.5, 2), rng.uniform(1, 2)
    kernel, before = w**2, -slope * w + mu * w**4
    smoothness, gradients = 2 * mu * kernel, []
    for _ in range(steps):
        gradients.append(-slope + 2 * mu * w * kernel)
        w -= rate * gradients[-1]
    largest, norm = max(map(abs, gradients)), max(abs(w), kernel**0.5)
    return Round(
        before,
        -slope * w + mu * w**2 * kernel,
        -slope * w + mu * w**2 * w**2,  # The mean kernel has become w^2.
        (rate - smoothness * rate**2 / 2) * sum(g**2 for g in gradients),
        2 * mu * rate * largest * norm**3,
    )


def violations(steps: int, draws: int = 10_000) -> tuple[float, ...]:
    """The shares of draws in which Lemma 4.5, Lemma 4.6 and Theorem 4.7's bound fail.

    The last one is the share in which the loss rises of those with Theorem 4.7's conditions.
    """
    rng = np.random.default_rng(steps)
    rounds = [hetero_round(steps, rng) for _ in range(draws)]
    shares = np.mean([one.failures() for one in rounds], axis=0).tolist()
    rises = [one.after_update > one.before for one in rounds if one.is_guaranteed]
    return *shares, float(np.mean(rises))


def _print_corollary_1(draws: int = 20) -> None:
    from scipy import stats

    for clients in (1, 5):
        found = {
            (kind, size): [corollary_1(clients, kind, size, seed) for seed in range(draws)]
            for kind in ("all classes", "two classes") for size in (20, 80)
        }  # fmt: skip
        for (kind, size), pairs in found.items():
            loss, constant = np.mean(pairs, axis=0)
            print(f"Corollary 1: {clients} x {size} images of {kind}: loss {loss:.2f}, "
                  f"mean image {constant:.2f}")  # fmt: skip
        few, many = np.array(found["all classes", 20]), np.array(found["two classes", 80])
        gain = (few - many)[:, 0]
        low, high = stats.t.interval(0.95, draws - 1, np.mean(gain), stats.sem(gain))
        print(f"Corollary 1: {clients} x 80 images of two classes are better than 20 of all by "
              f"{np.mean(gain):.2f} (95 % interval {low:.2f} to {high:.2f})")  # fmt: skip


if __name__ == "__main__":
    print(f"Theorem 1: formula and gradient descent differ by {theorem_1():.1e} at most")
    print(f"The printed matrices have an inverse in {printed_inverses()} of 100 draws")
    _print_corollary_1()
    for steps in (1, 2, 5):
        *shares, rises = (f"{100 * share:.1f} %" for share in violations(steps))
        print(f"E = {steps}: Lemma 4.5, Lemma 4.6, Theorem 4.7 fail in {', '.join(shares)} of "
              f"draws; with its conditions, the loss rises in {rises}")  # fmt: skip
