"""Lowered rounds, read back from their files, against the original rounds."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.by_algorithm import by_algorithm
from tff_ssl.algorithms import fedu, registry
from tff_ssl.algorithms.dcco import two_stage
from tff_ssl.deployment import lowering
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.simulation import state_files
from tff_ssl.templates import message_sizes


def flat(value):
    """The leaves by position, since values of computations from files have no Python classes."""
    nested = tff.structure.from_container(value, recursive=True)
    return [np.asarray(leaf) for leaf in tff.structure.flatten(nested)]


def assert_same_bits(one, other):
    one, other = flat(one), flat(other)
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def run_map_reduce(form, state, clients, sent):
    """Runs the form as a stack does; appends each client's bytes received and sent to `sent`."""
    prepared = form.prepare(state)
    total = form.zero()
    for client in clients:
        update, *secure = form.work(client, prepared)
        assert flat(secure) == []
        sent.append(tuple(sum(leaf.nbytes for leaf in flat(x)) for x in (prepared, update)))
        total = form.accumulate(total, update)
    return form.update(state, (form.report(total), (), (), ()))


def run_mergeable(form, *arguments):
    """Runs the form in two slices, of two clients and of one."""
    slices = [
        [a[part] if isinstance(a, list) else a for a in arguments]
        for part in (slice(2), slice(2, None))
    ]
    merged = form.merge(*(form.up_to_merge(*part) for part in slices))
    return form.after_merge(list(arguments), merged)


def new_states(computations, count):
    state = tf.nest.map_structure(np.asarray, computations.initial_client_state(0))
    return [state] * count


def paths(folder, states):
    """For each client, the path of a file with its state, and a path to write."""
    pairs = []
    for client, state in enumerate(states):
        path = str(folder / f"{client}")
        state_files.write_state(path, state)
        pairs.append((path, f"{path}.new"))
    return pairs


def assert_states_written(folder, states, case):
    """Compares states that were written with those of the typed round, and deletes the files."""
    written = sorted(folder.glob("*.new"))
    assert len(written) == (len(states) if case == "round_with_stored_states" else 0)
    for path, state in zip(written, states, strict=False):
        state_files.write_state(str(folder / "expected"), state)
        assert path.read_bytes() == (folder / "expected").read_bytes()
        path.unlink()


def received(models):
    """Models with weights, in the form in which a client receives them from its neighbours."""
    leaves = zip(*map(tf.nest.flatten, models), strict=True)
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            weight=np.arange(1.0, len(models) + 1), model=tuple(map(np.stack, leaves))
        )
    )


def cases(computations, clients, folder):
    """(name, round, its arguments) of all computations of an algorithm that can be lowered."""
    if computations.kind == "decentralized":
        rounds = computations.rounds_to_lower()
        models = [
            tf.nest.map_structure(np.asarray, computations.initial_weights(k)) for k in (1, 2, 3)
        ]
        yield "training", rounds["training"], (0, models, clients)
        yield "averaging", rounds["averaging"], (models, [received(models)] * len(models))
        return
    if computations.kind == "heterogeneous_clients":
        rng = np.random.default_rng(0)
        (architecture,) = computations.architectures
        _, kernel, rad, _, _ = architecture.train.type_signature.parameter
        server = (
            rng.normal(size=kernel.member.shape).astype(np.float32),
            rng.integers(0, 256, rad.member.shape, np.uint8),
        )
        ((name, lowerable),) = computations.rounds_to_lower().items()
        yield name, lowerable, (0, *server, new_states(architecture, len(clients)), clients)
        return
    for name, lowerable in computations.rounds_to_lower().items():
        state = lowerable.initialize()
        if computations.kind == "stateful_clients":
            # In the first round some algorithms do not train.
            typed = computations.process.next
            state = typed(state, new_states(computations, len(clients)), clients).state
        if name == "update":
            state = computations.stages["statistics"].next(state, clients).state
        if name == "round_with_stored_states":
            files = paths(folder, new_states(computations, len(clients)))
            data = [(*pair, client) for pair, client in zip(files, clients, strict=True)]
            yield name, lowerable, (state, data)
        elif computations.kind == "stateful_clients":
            yield name, lowerable, (state, new_states(computations, len(clients)), clients)
        else:
            yield name, lowerable, (state, clients)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", by_algorithm(registry.ALGORITHMS, default=("dcco", "denav", "hetero_ssfl"))
)
def test_lowered_forms_equal_the_round_to_the_last_bit(worker, small_algorithm, tmp_path, name):
    converted, states = set(), []
    _, clients = small_algorithm(name).inputs
    computations = small_algorithm(name).computations
    for case, lowerable, arguments in cases(computations, clients, tmp_path):
        expected = lowerable.next(*arguments)
        if computations.kind == "stateful_clients":
            states = states or expected.client_states  # The typed round is the first case.
        check = functools.partial(assert_states_written, tmp_path, states, case)
        check()
        lowered = lowering.lower(lowerable.next)
        files = lowering.save(tmp_path / case, lowerable, lowered)
        assert all(file.stat().st_size > 0 for file in files)
        converted |= lowered.forms.keys()
        assert lowered.forms.keys() | lowered.reasons.keys() == lowering.FORMS.keys()
        forms = {form: lowering.load_form(tmp_path / case / form) for form in lowered.forms}
        if "map_reduce" in forms:
            sent = []
            output = run_map_reduce(forms["map_reduce"], *arguments, sent)
            assert_same_bits(output, expected)
            check()
            assert set(sent) == {message_sizes.client_bytes(lowerable.next)}
        if "distribute_aggregate" in forms:
            form = forms["distribute_aggregate"]
            again = tff.backends.mapreduce.get_computation_for_distribute_aggregate_form(form)
            assert_same_bits(again(*arguments), expected)
            check()
        if "mergeable" in forms:
            assert_same_bits(run_mergeable(forms["mergeable"], *arguments), expected)
            check()
    if computations.kind in ("decentralized", "heterogeneous_clients"):
        # Values stay at the clients, for which map-reduce forms have no place.
        assert converted == {"mergeable"}
        return
    # Each form exists for some round of the algorithm, so that any stack can run it.
    expected_forms = set(lowering.FORMS)
    if registry.ALGORITHMS[name].collects:
        expected_forms.remove("distribute_aggregate")
        assert "collects rows of single clients" in lowered.reasons["distribute_aggregate"]
    assert converted == expected_forms
    assert_declared_bytes(name, computations)


@pytest.mark.long
@pytest.mark.xdist_group("fedu")
@pytest.mark.slow
def test_a_round_with_batch_norm_on_the_projectors_output_is_lowered(
    worker, small_algorithm, tmp_path
):
    model = DualEncoder("tiny", (2, 2, 3), (8, 4), (8, 4), projector_output_batch_norm=True)
    task, clients = small_algorithm("fedu").inputs
    computations = fedu.build_fedu(task._replace(model=model))
    rounds = cases(computations, clients, tmp_path)
    arguments = next(case for name, _, case in rounds if name != "round_with_stored_states")
    expected = computations.process.next(*arguments)
    before, after = arguments[0].model.non_trainable, expected.state.model.non_trainable
    assert len(before) == 2
    assert all(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(before, after, strict=True))
    form = lowering.lower(computations.process.next).forms["mergeable"]
    assert_same_bits(run_mergeable(form, *arguments), expected)


def assert_declared_bytes(name, computations):
    """Compares the declared downloads and uploads of an algorithm with the bytes of its round."""
    down, up = message_sizes.client_bytes(computations.process.next)
    if name == "featarc":
        # The means of both clusters are sums over all clients; one of a client's terms is zero.
        up -= message_sizes.total_bytes(computations.uploads)
    # The rest are scalars: counts, weights and metrics.
    assert 0 <= down - message_sizes.total_bytes(computations.downloads) <= 8
    assert 0 < up - message_sizes.total_bytes(computations.uploads) <= 80


@pytest.mark.long
@pytest.mark.slow
def test_reasons_of_forms_that_do_not_exist(small_algorithm):
    lowered = lowering.lower(small_algorithm("dcco").computations.process.next)
    assert lowered.forms == {}
    assert lowered.reasons.keys() == lowering.FORMS.keys()
    assert all(reason.startswith("two stages: ") for reason in lowered.reasons.values())
    lowered = lowering.lower(small_algorithm("fedbn").computations.process.next)
    assert lowered.forms.keys() == {"mergeable"}
    assert "more than a server state and the clients' data" in lowered.reasons["map_reduce"]


def test_unknown_messages_of_tff_are_shortened():
    on_server = tff.types.FederatedType(np.int32, tff.SERVER)
    on_clients = tff.types.FederatedType(np.float32, tff.CLIENTS)

    @tff.federated_computation(on_server, on_clients)
    def forgets_its_state(state, data):
        total = tff.federated_sum(data)
        return total, total

    reason = lowering.lower(forgets_its_state).reasons["map_reduce"]
    assert "TypeError" in reason
    assert len(reason) < 300
    assert "\n" not in reason


@pytest.mark.long
@pytest.mark.xdist_group("dcco")
@pytest.mark.slow
def test_secure_sums_are_told_apart(small_algorithm):
    task = small_algorithm("dcco").task
    summed = tff.aggregators.SecureSumFactory(upper_bound_threshold=10.0)
    computations = two_stage.build_dcco(
        task, update_aggregator=tff.aggregators.MeanFactory(summed, summed)
    )
    rounds = computations.rounds_to_lower()
    none, some = (message_sizes.messages(rounds[n].next) for n in ("statistics", "update"))
    assert not any(message.is_secure for message in none)
    secure = [message for message in some if message.is_secure]
    weights = computations.uploads[1]
    # Delta and weight are integers of 64 bits; each has three counts of clipped values.
    assert message_sizes.total_bytes(m.type_spec for m in secure) == (
        2 * message_sizes.type_bytes(weights) + 8 + 2 * 3 * 4
    )
    lowered = lowering.lower(rounds["update"].next)
    assert lowered.forms["map_reduce"].securely_aggregates_tensors
