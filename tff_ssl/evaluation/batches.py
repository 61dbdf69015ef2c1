"""Batches of a fixed number of training steps."""

import numpy as np


def permuted_batches(
    examples: np.ndarray, steps: int, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """The examples of each step, integers [steps, min(batch_size, n)].

    Independent permutations of all n >= 1 examples are cut into batches.
    """
    batch_size = min(batch_size, len(examples))
    epochs = -(-steps * batch_size // len(examples))
    order = np.concatenate([rng.permutation(examples) for _ in range(epochs)])
    return order[: steps * batch_size].reshape(steps, batch_size)
