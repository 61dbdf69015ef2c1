"""The kNN monitor: weighted k-nearest-neighbour classification of features, without any training.

Z. Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", 2018
(arXiv:1805.01978), section 3.4: the k examples of the bank with the largest cosine similarity s
vote for their class with the weight exp(s / tau). k = 20 as in DINO (Caron et al. 2021), tau = 0.07
as in both.
"""

import numpy as np

from tff_ssl.evaluation import labels as labelling

_SIMILARITIES_IN_MEMORY = 2**22  # Computed at once; about 64 MiB with their order.


def knn_probe(
    bank_features: np.ndarray,
    bank_labels: np.ndarray,
    query_features: np.ndarray,
    query_labels: np.ndarray,
    k: int = 20,
    temperature: float = 0.07,
) -> labelling.Scores:
    """Scores the classes that a bank of labelled features predicts for queries.

    Features are [n, d] and [m, d]; examples labelled -1 (unknown) are ignored. A bank of fewer than
    `k` examples votes as a whole, and at an infinite temperature all neighbours have the same vote.

    Raises:
      ValueError: Shapes do not fit, features are not finite, or `k` or `temperature` is not
        positive.
    """
    bank, classes = labelling.labelled_examples("bank", bank_features, bank_labels)
    queries, targets = labelling.labelled_examples("query", query_features, query_labels)
    if bank.shape[1] != queries.shape[1]:
        raise ValueError(
            f"Bank and query features differ in size: {bank.shape[1]} and {queries.shape[1]}."
        )
    predicted = _predict(bank, classes, queries, k, temperature, leave_one_out=False)
    return labelling.score(predicted, targets)


def leave_one_out_knn(
    features: np.ndarray, labels: np.ndarray, k: int = 20, temperature: float = 0.07
) -> labelling.Scores:
    """Scores the class that all other examples predict for each example; see `knn_probe`.

    This is the monitor during training: no test example is used to watch a run or select a model.
    There must be at least two labelled examples.
    """
    bank, classes = labelling.labelled_examples("training", features, labels)
    if len(bank) < 2:
        raise ValueError("Leaving one example out needs at least two labelled examples.")
    predicted = _predict(bank, classes, bank, k, temperature, leave_one_out=True)
    return labelling.score(predicted, classes)


def _predict(
    bank: np.ndarray,
    labels: np.ndarray,
    queries: np.ndarray,
    k: int,
    temperature: float,
    leave_one_out: bool,
) -> np.ndarray:
    """The class with most votes for each query, int64 [m]; the smallest one of a tie."""
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}.")
    if not temperature > 0:
        raise ValueError(f"The temperature must be positive, found {temperature}.")
    k = min(k, len(bank) - leave_one_out)
    classes, class_index = np.unique(labels, return_inverse=True)
    bank, queries = _unit_rows(bank), _unit_rows(queries)
    chunk_size = max(1, _SIMILARITIES_IN_MEMORY // len(bank))
    predicted = []
    for start in range(0, len(queries), chunk_size):
        similarities = queries[start : start + chunk_size] @ bank.T  # [chunk_size, n]
        rows = np.arange(len(similarities))
        if leave_one_out:
            similarities[rows, start + rows] = -np.inf
        votes = _votes(similarities, class_index, len(classes), k, temperature)
        predicted.append(classes[votes.argmax(axis=1)])
    return np.concatenate(predicted)


def _votes(
    similarities: np.ndarray, class_index: np.ndarray, num_classes: int, k: int, temperature: float
) -> np.ndarray:
    """Sums the weights exp(s / tau) of the k nearest examples in each class, [m, num_classes].

    The weights of a query are divided by the largest of them, so that none overflows.
    """
    nearest = np.argpartition(-similarities, k - 1, axis=1)[:, :k]  # [m, k]
    s = np.take_along_axis(similarities, nearest, axis=1).astype(np.float64)
    weights = np.exp((s - s.max(axis=1, keepdims=True)) / temperature)
    cells = np.arange(len(s))[:, None] * num_classes + class_index[nearest]
    votes = np.bincount(cells.ravel(), weights.ravel(), minlength=len(s) * num_classes)
    return votes.reshape(len(s), num_classes)


def _unit_rows(features: np.ndarray) -> np.ndarray:
    """Divides each row by its norm; a row of zeros stays."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms > 0, norms, 1)
