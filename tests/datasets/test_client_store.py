"""The client store: contents, types, errors, and bytes that a round sends."""

import collections
import sqlite3

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets import client_store, partitioners
from datasets.errors import DatasetError
from datasets.image_dataset import Split


def make_split(count, shape, seed=0):
    rng = np.random.default_rng(seed)
    return Split(
        images=rng.integers(0, 256, (count, *shape), dtype=np.uint8),
        labels=rng.integers(-1, 4, count).astype(np.int32),
        example_ids=rng.permutation(count).astype(np.int64) + 1000,
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store of 40 examples in 13 clients, with its split and its partition."""
    split = make_split(40, (8, 8, 1))
    clients = partitioners.iid(split.labels, np.random.default_rng(0), 13)
    path = tmp_path_factory.mktemp("store") / "clients.sqlite"
    client_store.write_store(path, split, clients)
    return client_store.StoredClientData(path), split, clients


def expected_rows(split, clients, group):
    """(client, example_id, image, label) of a group, in the order that a store guarantees."""
    rows = [
        (client, int(split.example_ids[i]), split.images[i], int(split.labels[i]))
        for client in sorted(group)
        for i in clients[client]
    ]
    return sorted(rows, key=lambda row: row[:2])


def assert_same(elements, rows):
    elements = list(elements)
    assert [int(e["client"]) for e in elements] == [row[0] for row in rows]
    assert [int(e["example_id"]) for e in elements] == [row[1] for row in rows]
    for element, row in zip(elements, rows, strict=True):
        assert np.array_equal(np.asarray(element["image"]), row[2])


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([(8, 8, 1), (4, 6, 3), (1, 1, 1)]),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_reads_back_what_was_written(tmp_path_factory, shape, count, seed, data):
    split = make_split(count, shape, seed)
    rng = np.random.default_rng(seed)
    clients = partitioners.iid(split.labels, rng, data.draw(st.integers(1, count)))
    path = tmp_path_factory.mktemp("store") / "it's 100%?#.sqlite"
    client_store.write_store(path, split, clients)
    store = client_store.StoredClientData(path, with_labels=True)
    group = rng.permutation(len(clients))[: data.draw(st.integers(1, len(clients)))]
    rows = expected_rows(split, clients, group)
    elements = list(store.group_dataset(group).as_numpy_iterator())
    assert_same(elements, rows)
    assert [int(e["label"]) for e in elements] == [row[3] for row in rows]
    assert store.client_sizes().tolist() == [len(indices) for indices in clients]


def test_one_client(stored):
    store, split, clients = stored
    assert store.client_ids == [str(k) for k in range(13)]
    for client_id in ("0", "12"):
        elements = store.create_tf_dataset_for_client(client_id).as_numpy_iterator()
        assert_same(elements, expected_rows(split, clients, [int(client_id)]))


def test_batch_of_a_group(stored):
    store, split, clients = stored
    group = np.array([3, 11, 0, 7, 8])
    (batch,) = store.group_batch(group)
    rows = tf.data.Dataset.from_tensor_slices(batch).as_numpy_iterator()
    assert_same(rows, expected_rows(split, clients, group))
    expected = tff.types.tensorflow_to_type(store.batch_type_structure)
    assert store.group_batch_computation.type_signature.result.element == expected


def test_element_types(stored):
    store, *_ = stored
    for client_data, names in (
        (store, ["client", "example_id", "image"]),
        (
            client_store.StoredClientData(store.path, with_labels=True),
            ["client", "example_id", "image", "label"],
        ),
    ):
        spec = client_data.element_type_structure
        assert list(spec) == names
        assert client_data.create_tf_dataset_for_client("0").element_spec == spec
        assert client_data.group_dataset(np.array([1, 2])).element_spec == spec
        element_type = client_data.group_dataset_computation.type_signature.result.element
        assert element_type == client_data.dataset_computation.type_signature.result.element
        expected = [
            (
                name,
                tff.types.TensorType(spec[name].dtype.as_numpy_dtype, spec[name].shape.as_list()),
            )
            for name in names
        ]
        assert element_type == tff.types.StructWithPythonType(expected, collections.OrderedDict)
    parameter = store.group_dataset_computation.type_signature.parameter
    assert parameter == tff.types.TensorType(np.int64, [None])


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ([], "at least one"),
        (["13"], "client '13'"),
        ([-1], "client -1"),
        (["1) OR (1=1"], "client '1"),
        (["01"], "client '01'"),
        (["²"], "client"),
        ([4, "4"], "twice"),
    ],
)
def test_bad_groups_are_refused_on_the_host(stored, group, words):
    with pytest.raises(DatasetError, match=words):
        stored[0].group_indices(group)


def test_bad_groups_never_reach_the_query(stored):
    store, *_ = stored
    for empty in (np.empty(0, np.int64), tf.zeros([0], tf.int64)):
        with pytest.raises(DatasetError, match="at least one"):
            store.group_dataset(empty)
    with pytest.raises(DatasetError, match="at least one"):
        tff.tensorflow.computation(store.group_dataset, tff.types.TensorType(np.int64, [0]))
    with pytest.raises(DatasetError, match="DROP"):
        store.create_tf_dataset_for_client("0); DROP TABLE examples; --")
    # In a graph, ids are not known, but only numbers can be converted.
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(store.serializable_dataset_fn(tf.constant("0) OR (1=1")))


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([], "at least one client"),
        ([[0, 1], []], "client 1"),
        ([[0, 1], [1]], "two clients"),
        ([[0, 5]], "outside"),
        ([[-1]], "outside"),
    ],
)
def test_bad_partitions_leave_nothing_behind(tmp_path, clients, words):
    with pytest.raises(DatasetError, match=words):
        client_store.write_store(
            tmp_path / "store", make_split(5, (2, 2, 1)), [np.array(c, np.int64) for c in clients]
        )
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_store(tmp_path):
    path = tmp_path / "store"
    with pytest.raises(DatasetError, match="does not exist"):
        client_store.StoredClientData(path)
    path.write_text("something else")
    with pytest.raises(DatasetError, match="not a client store"):
        client_store.StoredClientData(path)
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE meta (name TEXT, value INTEGER)")
    connection.close()
    with pytest.raises(DatasetError, match="format"):
        client_store.StoredClientData(path)
    with pytest.raises(DatasetError, match="cannot be written"):
        client_store.write_store(
            tmp_path / "no" / "store", make_split(2, (1, 1, 1)), [np.array([0])]
        )


def serialized_bytes(value, type_spec):
    return tff.framework.serialize_value(value, type_spec)[0].ByteSize()


def test_a_round_sends_less_than_two_percent_of_the_tensors(tmp_path):
    split = make_split(512, (32, 32, 3))
    clients = np.split(np.arange(512), 128)
    client_store.write_store(tmp_path / "store", split, clients)
    store = client_store.StoredClientData(tmp_path / "store")
    element_type = store.group_dataset_computation.type_signature.result
    tensors = sum(
        serialized_bytes(
            [
                collections.OrderedDict(
                    client=np.int64(k), example_id=split.example_ids[i], image=split.images[i]
                )
                for i in indices
            ],
            element_type,
        )
        for k, indices in enumerate(clients)
    )
    assert tensors > split.images.nbytes
    ids = sum(
        serialized_bytes(client_id, tff.types.TensorType(np.str_)) for client_id in store.client_ids
    )
    group = serialized_bytes(
        store.group_indices(store.client_ids), tff.types.TensorType(np.int64, [None])
    )
    # The computation is sent too, so it must not contain pixels either.
    program = tff.framework.serialize_computation(store.group_dataset_computation).ByteSize()
    print(f"tensors {tensors}, ids {ids}, group {group}, computation {program} bytes")
    assert ids < 0.02 * tensors
    assert group + program < 0.02 * tensors


def test_reads_inside_the_worker(stored, worker):
    store, split, clients = stored
    assert_same(store.dataset_computation("5"), expected_rows(split, clients, [5]))
    group = store.group_indices(["9", "2", "4"])
    rows = expected_rows(split, clients, [2, 4, 9])
    assert_same(store.group_dataset_computation(group), rows)


def test_federated_computation_maps_ids_to_data(stored, worker):
    store, split, clients = stored

    @tff.tensorflow.computation(store.dataset_computation.type_signature.result)
    def pixel_sum(dataset):
        return dataset.reduce(
            tf.constant(0, tf.int64),
            lambda total, e: total + tf.reduce_sum(tf.cast(e["image"], tf.int64)),
        )

    @tff.federated_computation(tff.FederatedType(pixel_sum.type_signature.parameter, tff.CLIENTS))
    def total(data):
        return tff.federated_sum(tff.federated_map(pixel_sum, data))

    from_ids = tff.simulation.compose_dataset_computation_with_computation(
        store.dataset_computation, total
    )
    chosen = np.concatenate([clients[k] for k in (0, 6, 12)])
    assert from_ids(["0", "6", "12"]) == split.images[chosen].astype(np.int64).sum()
