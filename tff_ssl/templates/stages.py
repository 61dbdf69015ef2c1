"""The stages of a round as functions of tensors, for clients and servers without TFF.

An algorithm composes its TFF computations from the same functions. `deployment.client_package`
writes them as signatures of a SavedModel.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf


class Mean(NamedTuple):
    """A client's contribution to a weighted mean; at the server, the mean and the total weight."""

    value: Any  #: A structure of float32 tensors.
    weight: Any  #: Its weight, float32.


class SumRule(NamedTuple):
    """A mean in which sums over clients are more than weighted values, such as a private mean."""

    #: (a client's contribution, its weight) -> what it adds to the sum.
    prepare: Callable[[Any, tf.Tensor], Any]
    mean: Callable[[Any], Any]  #: The sum -> the mean, at the server.

    def then(self, function: Callable[[Any], Any]) -> "SumRule":
        """The rule whose mean is post-processed by a function."""
        return self._replace(mean=lambda total: function(self.mean(total)))


class Upload(NamedTuple):
    """What a client sends in a stage, and what it keeps."""

    means: Mapping[str, Mean]  #: Contributions to weighted means over the clients, by name.
    sums: Mapping[str, Any]  #: Contributions to sums over the clients, by name.
    state: Any = ()  #: The client's new state; empty if clients keep none.


class Stage(NamedTuple):
    """A part of a round with one broadcast and one aggregation."""

    name: str
    #: The server's state -> what each client receives, by name.
    received: Callable[[Any], Mapping[str, Any]]
    #: (what the client received, its state, its examples as one batch) -> `Upload`.
    work: Callable[[Mapping[str, Any], Any, Any], Upload]
    #: (the server's state, means and total weights, sums) -> the new state and metrics by name. A
    #: mean to which no client contributed is NaN.
    finish: Callable[
        [Any, Mapping[str, Mean], Mapping[str, tf.Tensor]], tuple[Any, Mapping[str, tf.Tensor]]
    ]
