"""Checks theorems of the papers numerically, on their own assumptions.

    python -m launch.studies.theorems

- DeNAV, Theorem 1: for linear encoder and decoder, the model that minimizes the loss of
  reconstructing the images X of some clients from corrupted images X~ is
  W = X X~^T (X~ X~^T)^-1. Compared with gradient descent.
- DeNAV, Corollary 1: the loss depends mainly on the number of images of a client. Compared are
  clients of all classes and clients of one class of scikit-learn's digits, on all test images.
- Hetero-SSFL, Theorem 4.7: a bound on a client's loss after a round of E local steps. Tried with
  embeddings x -> w x of one image, where all constants of the assumptions are known.
"""

from typing import NamedTuple

import numpy as np

_MASKED = 0.75  # Share of the pixels that a masked autoencoder does not see.


def best_map(images: np.ndarray, corrupted: np.ndarray) -> np.ndarray:
    """Theorem 1's W, with an image a column; the pseudoinverse where there is no inverse."""
    return images @ corrupted.T @ np.linalg.pinv(corrupted @ corrupted.T, hermitian=True)


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


def corollary_1(sizes: tuple[int, ...] = (20, 120), draws: int = 10) -> dict[str, list[float]]:
    """Test losses of one client's best map, by kind of client and number of its images.

    The loss is the mean squared error, divided by the variance of the pixels, on masked test images
    of all classes. Each image is masked in 64 ways, as in 64 epochs.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.data.T / 16, digits.target
    variance = np.mean(images.var(axis=1))
    losses: dict[str, list[float]] = {"all classes": [], "one class": []}
    for kind, found in losses.items():
        for size in sizes:
            of_size = []
            for seed in range(draws):
                rng = np.random.default_rng(seed)
                order = rng.permutation(len(labels))
                test, pool = order[:500], order[500:]
                if kind == "one class":
                    pool = pool[labels[pool] == seed % 10]
                own = np.repeat(images[:, pool[:size]], 64, axis=1)
                mapped = best_map(own, own * (rng.random(own.shape) > _MASKED))
                seen = images[:, test] * (rng.random((len(images), len(test))) > _MASKED)
                wrong = np.mean((mapped @ seen - images[:, test]) ** 2)
                of_size.append(wrong / variance)
            found.append(float(np.mean(of_size)))
    return losses


class Bound(NamedTuple):
    """Both sides of Theorem 4.7 for a client."""

    loss: float  # After the round and the update of the representations.
    bound: float  # The printed bound of it.


def theorem_4_7(steps: int, rng: np.random.Generator) -> Bound:
    """A round of E local steps of equal clients, whose loss is -a w + mu w^2 K.

    Embeddings are w x with x = 1, so that K is the mean of the clients' w^2. Gradients are exact
    (sigma = 0), L = 1 and L_2 = 1. The other constants are the smallest that the round allows.
    """
    rate, mu = 10 ** rng.uniform(-4, -2), 10 ** rng.uniform(-4, -1)
    slope, w = rng.uniform(0.5, 2), rng.uniform(1, 2)
    kernel, start = w**2, -slope * w + mu * w**4
    smoothness, gradients = 2 * mu * kernel, []
    for _ in range(steps):
        gradients.append(-slope + 2 * mu * w * kernel)
        w -= rate * gradients[-1]
    largest, norm = max(map(abs, gradients)), max(abs(w), kernel**0.5)
    loss = -slope * w + mu * w**2 * w**2  # The mean kernel has become w^2.
    fall = (rate - smoothness * rate**2 / 2) * sum(g**2 for g in gradients)
    return Bound(loss, start - fall + 2 * mu * rate * largest * norm**3)


def violations(steps: int, draws: int = 1000) -> float:
    """The share of draws whose loss is above Theorem 4.7's bound by more than rounding."""
    rng = np.random.default_rng(steps)
    found = [theorem_4_7(steps, rng) for _ in range(draws)]
    return sum(one.loss > one.bound + 1e-12 for one in found) / draws


if __name__ == "__main__":
    print(f"Theorem 1: formula and gradient descent differ by {theorem_1():.1e} at most")
    print(f"The printed matrices have an inverse in {printed_inverses()} of 100 draws")
    for kind, losses in corollary_1().items():
        print(f"Corollary 1: {kind}, loss with 20 and 120 images: {losses[0]:.2f}, {losses[1]:.2f}")
    for steps in (1, 2, 5):
        print(f"Theorem 4.7: with E = {steps} the bound fails in {violations(steps):.1%} of draws")
