"""Bytes of types and messages, against products worked out by hand."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl.templates import message_sizes


def test_nested_types():
    nested = tff.types.to_type({"a": (np.float32, [3, 5]), "b": [np.int64, (np.uint8, [7])]})
    assert message_sizes.type_bytes(nested) == 4 * 15 + 8 + 7
    assert message_sizes.total_bytes([nested, tff.types.to_type(np.float32)]) == 75 + 4


@pytest.mark.parametrize("unknown", [(np.float32, [None, 2]), np.str_])
def test_types_without_a_size_are_refused(unknown):
    with pytest.raises(ValueError, match="no fixed size"):
        message_sizes.type_bytes(tff.types.to_type(unknown))


def test_what_passes_between_server_and_clients():
    on_server = tff.types.FederatedType((np.float32, [3]), tff.SERVER)
    on_clients = tff.types.FederatedType([np.int64, (np.float32, [2, 2])], tff.CLIENTS)

    @tff.federated_computation(on_server, on_clients)
    def two_stages(state, data):
        shared = tff.federated_broadcast(state)
        again = tff.federated_broadcast(state)
        first = tff.federated_sum(data[0])
        second = tff.federated_broadcast(first)
        mean = tff.federated_mean(data[1])
        return mean, shared, again, second

    sent = message_sizes.messages(two_stages)
    downs = [str(message.type_spec) for message in sent if message.down]
    ups = [str(message.type_spec) for message in sent if not message.down]
    assert sorted(downs) == ["float32[3]", "float32[3]", "int64"]
    assert sorted(ups) == ["float32[2,2]", "int64"]
    assert message_sizes.client_bytes(two_stages) == (2 * 3 * 4 + 8, 4 * 4 + 8)
    assert not any(message.is_secure for message in sent)


def test_secure_sums_are_told_apart():
    @tff.federated_computation(tff.types.FederatedType(np.int32, tff.CLIENTS))
    def summed(data):
        return tff.federated_secure_sum_bitwidth(data, 5), tff.federated_sum(data)

    secure = [message.operation for message in message_sizes.messages(summed) if message.is_secure]
    assert secure == ["federated_secure_sum_bitwidth"]
    # The bit width is no message. Each of the two sums sends one int32.
    assert message_sizes.client_bytes(summed) == (0, 8)
