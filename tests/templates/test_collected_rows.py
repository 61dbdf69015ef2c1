"""Rows of single clients at the server: their places, the forms of a round with them, messages."""

import collections

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.deployment import lowering
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.stateful.algorithm import build_stateful_clients
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.templates import collected_rows, local_training, message_sizes
from tff_ssl.templates.client_output import output_if_finite
from tff_ssl.templates.collected_rows import ClientRows

POPULATION, ROWS, WIDTH = 5, 2, 3
SENT = tff.types.StructWithPythonType(
    [("client", np.int64), ("rows", (np.float32, [ROWS, WIDTH]))], ClientRows
)


def sent_by(*clients):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(POPULATION, ROWS, WIDTH)).astype(np.float32)
    expected = np.zeros_like(rows)
    expected[list(clients)] = rows[list(clients)]
    return [ClientRows(np.int64(k), rows[k]) for k in clients], expected


@tff.federated_computation(
    tff.types.FederatedType(np.float32, tff.SERVER), tff.types.FederatedType(SENT, tff.CLIENTS)
)
def next_round(state, sent):
    return state, collected_rows.collect(sent, POPULATION)


@pytest.mark.parametrize("clients", [(3, 0, 4), (4, 3, 0), (1,), tuple(range(5))])
def test_each_client_has_its_place_whatever_the_order(worker, clients):
    sent, expected = sent_by(*clients)
    np.testing.assert_array_equal(next_round(1.0, sent)[1], expected)


def test_lowered_forms_and_slices_give_the_same_rows(worker):
    lowered = lowering.lower(next_round)
    assert lowered.forms.keys() == {"map_reduce", "mergeable"}
    assert "collects rows of single clients" in lowered.reasons["distribute_aggregate"]
    sent, expected = sent_by(3, 0, 4)
    form = lowered.forms["mergeable"]
    slices = [form.up_to_merge(1.0, part) for part in (sent[:2], sent[2:])]
    _, rows = form.after_merge([1.0, sent], form.merge(*slices))
    np.testing.assert_array_equal(rows, expected)
    form = lowered.forms["map_reduce"]
    total = form.zero()
    for one in sent:
        update, *_ = form.work(one, form.prepare(1.0))
        total = form.accumulate(total, update)
    _, rows = form.update(1.0, (form.report(total), (), (), ()))
    np.testing.assert_array_equal(rows, expected)


def test_a_client_sends_its_own_rows_only():
    (message,) = [m for m in message_sizes.messages(next_round) if not m.down]
    assert message_sizes.type_bytes(message.type_spec) == 8 + 4 * ROWS * WIDTH
    assert not message.is_secure


def test_a_client_that_the_population_does_not_have_makes_the_round_fail(worker):
    sent, _ = sent_by(1)
    with pytest.raises(grpc.RpcError, match="does not index into"):
        next_round(1.0, [sent[0]._replace(client=np.int64(POPULATION))])


ELEMENT = collections.OrderedDict(client=np.int64, example_id=np.int64)


def counting_algorithm():
    """An algorithm whose clients send their number of examples, and whose server notes all."""

    def client_work(model, round_number, state, examples):
        first = examples.batch(100).get_single_element()
        n = tf.cast(tf.size(first["client"]), tf.float32)
        zero, nothing = tf.constant(0.0), Weights((), ())
        trained = local_training.LocalModel(nothing, nothing, zero, tf.zeros([1]), tf.zeros([1]))
        # Examples with a negative id give rows that are not finite.
        is_bad = tf.reduce_any(first["example_id"] < 0)
        row = tf.where(is_bad, np.inf, tf.stack([[n, tf.cast(round_number, tf.float32)]]))
        rows = collected_rows.rows_of(first, row)
        return output_if_finite([(n, n)], state, state, trained, 1, {}, rows)

    def server_update(model, means, weights, round_number, rows):
        return collections.OrderedDict(
            mean=means[0], weight=weights[0], round_number=round_number, rows=rows
        )

    def initial_model(seed):
        return collections.OrderedDict(
            mean=tf.constant(0.0),
            weight=tf.constant(0.0),
            round_number=tf.constant(-1, tf.int64),
            rows=tf.zeros([3, 1, 2]),
        )

    return build_stateful_clients(
        initial_model=initial_model,
        initial_client_state=lambda seed: tf.constant(0),
        client_work=client_work,
        server_update=server_update,
        element_type=tff.types.to_type(ELEMENT),
        global_weights=lambda model: Weights((), ()),
        client_weights=lambda model, state: Weights((), ()),
        sums_weights=True,
        numbers_rounds=True,
        collects_from=3,
    )


def examples(client, ids):
    columns = {"client": np.full(len(ids), client, np.int64), "example_id": np.array(ids, np.int64)}
    return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(columns))


def test_the_server_gets_means_weights_round_and_rows(worker):
    algorithm = counting_algorithm()
    state = algorithm.process.initialize()
    one, two, bad = examples(0, [1, 2]), examples(2, [3, 4, 5, 6]), examples(1, [-1])
    first = algorithm.process.next(state, [0, 0, 0], [two, bad, one])
    model = first.state.model
    assert (model["weight"], model["round_number"]) == (6, 0)
    assert model["mean"] == pytest.approx((4 + 16) / 6)
    np.testing.assert_array_equal(model["rows"], [[[2, 0]], [[0, 0]], [[4, 0]]])
    assert first.metrics["dropped_clients"] == 1
    second = algorithm.process.next(first.state, [0], [two]).state.model
    assert second["round_number"] == 1
    np.testing.assert_array_equal(second["rows"], [[[0, 0]], [[0, 0]], [[4, 1]]])
    assert algorithm.client_bytes()[1] == 4 + (8 + 4 * 2)


def test_an_unknown_population_is_refused(small_algorithm):
    task = small_algorithm("fedbn").task
    assert collected_rows.check_population(task, "name") == 3
    with pytest.raises(ConfigurationError, match=r"name needs the population.*client_sizes"):
        collected_rows.check_population(task._replace(client_sizes=()), "name")
    nameless = tff.types.to_type(collections.OrderedDict(image=np.int64))
    with pytest.raises(ConfigurationError, match="name needs examples with a field `client`"):
        collected_rows.check_population(task._replace(element_type=nameless), "name")
