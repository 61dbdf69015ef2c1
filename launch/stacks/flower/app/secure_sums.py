"""Sums over the nodes by Flower's SecAgg+, so that the server sees no single node's arrays.

SecAgg+ averages vectors of numbers within a range, as integers of 32 bits. Each number is sent as
two: a whole number, and the rest times the range. The sum is then exact to about 1e-8.

SecAgg+ of Flower 1.42 protects against a server that looks, and not against one that computes: its
masks come from NumPy's generator with seeds of 32 bits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import records
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from flwr.compat.common import recorddict_compat
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from memories import Arrays

_RANGE = 2.0**14  # Of a number in a node's sum.
_LEVELS = 2**31  # Of the sum over the nodes.


def secure_mod(message: Message, context: Context, call_next: Any) -> Message:
    """Answers SecAgg+'s messages; others go on to the app."""
    if RECORD_KEY_CONFIGS not in message.content.config_records:
        return call_next(message, context)

    def as_result(message: Message, context: Context) -> Message:
        up = records.arrays(call_next(message, context).content.array_records["up"])
        vector = np.concatenate([np.ravel(up[name]).astype(np.float64) for name in sorted(up)])
        if not np.all(np.abs(vector) < _RANGE):
            raise ValueError(f"a sum is not finite, or not below {_RANGE:g}")
        whole = np.rint(vector)
        parameters = ndarrays_to_parameters([np.concatenate([whole, (vector - whole) * _RANGE])])
        result = FitRes(Status(Code.OK, ""), parameters, num_examples=1, metrics={})
        content = recorddict_compat.fitres_to_recorddict(result, keep_input=False)
        return Message(content, reply_to=message)

    return secaggplus_mod(message, context, as_result)


class _Strategy:
    """What the workflow asks of a strategy and of a manager of clients; keeps the result."""

    def __init__(self, nodes: Mapping[int, Any]):
        self._nodes = nodes
        self.counted: list[int] = []
        self.mean: np.ndarray | None = None

    def configure_fit(self, *_: Any) -> list[tuple["_Node", FitIns]]:
        empty = ndarrays_to_parameters([])
        return [(_Node(node), FitIns(empty, {})) for node in self._nodes]

    def num_available(self) -> int:
        return len(self._nodes)

    def aggregate_fit(self, _: int, results: list[Any], failures: Any) -> tuple[None, dict]:
        self.counted = [node.node_id for node, _ in results]
        (self.mean,) = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


class _Node:
    def __init__(self, node_id: int):
        self.node_id = node_id


class _Workflow(SecAggPlusWorkflow):
    """SecAgg+ whose third message has the content of the app's own message."""

    def __init__(self, contents: Mapping[int, RecordDict], timeout: float | None):
        levels = _LEVELS // 2 ** (len(contents) - 1).bit_length()
        super().__init__(
            1.0, 0.51, max_weight=1.0, clipping_range=_RANGE, quantization_range=levels,
            timeout=timeout,
        )  # fmt: skip
        self._contents = contents

    def setup_stage(self, grid: Any, context: LegacyContext, state: Any) -> bool:
        is_ready = super().setup_stage(grid, context, state)
        state.nid_to_fitins = dict(self._contents)
        return is_ready


def ask(
    grid: Any,
    context: Context,
    contents: Mapping[int, RecordDict],
    number: int,
    expected: Mapping[str, Any],
    timeout: float | None,
) -> tuple[Arrays, set[int]]:
    """The sums over the nodes that answered, and these nodes; empty if too few did."""
    strategy = _Strategy(contents)
    legacy = LegacyContext(context, strategy=strategy, client_manager=strategy)
    legacy.state.config_records["config"] = ConfigRecord({"current_round": number})
    legacy.state.array_records["parameters"] = records.record({})
    _Workflow(contents, timeout)(grid, legacy)
    if strategy.mean is None:
        return {}, set()
    whole, rest = np.split(strategy.mean * len(strategy.counted), 2)
    vector, sums = np.rint(whole) + rest / _RANGE, {}
    for name in sorted(expected):
        shape, dtype = expected[name]["shape"], expected[name]["dtype"]
        own, vector = np.split(vector, [int(np.prod(shape))])
        own = np.rint(own) if dtype.startswith("int") else own
        sums[name] = own.reshape(shape).astype(dtype)
    return sums, set(strategy.counted)
