"""Batches of a fixed number of training steps."""

import numpy as np


def permuted_batches(
    examples: np.ndarray, steps: int, batch_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Returns the examples of each step: independent permutations of all, cut into batches.

    Args:
      examples: Indices of the examples, integers [n], n >= 1.
      steps: Number of steps.
      batch_size: Number of examples per step; n, if there are fewer.
      rng: Generator of the permutations.

    Returns:
      Integers [steps, min(batch_size, n)].
    """
    batch_size = min(batch_size, len(examples))
    epochs = -(-steps * batch_size // len(examples))
    order = np.concatenate([rng.permutation(examples) for _ in range(epochs)])
    return order[: steps * batch_size].reshape(steps, batch_size)
