"""A node's reaction to clients that fail or hang, tested without Ray."""

import os
import pathlib

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.errors import ClientFailedError
from tff_ssl.runtime import ray_actor, slices
from tff_ssl.runtime.slices import Slice

FAILS, HANGS = 7, 8


@tff.tensorflow.computation(tff.types.TensorType(np.int64, [None]))
def tens(clients):
    """Ten times the sum of the clients; client FAILS fails, and client HANGS takes minutes."""
    works = tf.Assert(tf.reduce_all(tf.not_equal(clients, FAILS)), ["this client has no battery"])
    with tf.control_dependencies([works]):
        last = tf.where(tf.reduce_any(tf.equal(clients, HANGS)), 10**9, 0)
    count = tf.while_loop(lambda i: i < last, lambda i: [i + 1], [0])[0]
    with tf.control_dependencies([count]):
        return 10 * tf.reduce_sum(clients)


def build_program():
    """A serialized program: (number@SERVER, clients@CLIENTS) -> sums of `tens` and of numbers."""
    indices_type = tff.types.TensorType(np.int64, [None])

    @tff.federated_computation(
        tff.types.FederatedType(np.int64, tff.SERVER),
        tff.types.FederatedType(indices_type, tff.CLIENTS),
    )
    def program(number, clients):
        found = tff.federated_map(tens, clients)
        ones = tff.federated_broadcast(number)
        return tff.federated_zip((tff.federated_sum(found), tff.federated_sum(ones)))

    return slices.serialize(slices.with_files(program))


@pytest.fixture
def actor():
    running = ray_actor.Actor((0, 1), None, call_seconds=12.0)
    yield running
    running.close()


ONE = slices.to_bytes(np.int64(1))


def sums(tens, ones):
    return slices.to_bytes((np.int64(tens), np.int64(ones)))


def of(*clients):
    return Slice([np.array([client]) for client in clients])


@pytest.mark.slow
def test_bad_clients_are_reported_and_the_node_goes_on(actor):
    program = build_program()
    facts = actor.start([__file__])
    assert facts.pid == os.getpid()
    assert facts.digests == {__file__: ray_actor.digest(__file__)}
    assert actor.work(program, ONE, of(2, 3)).sums == sums(50, 2)
    failed = actor.work(program, ONE, of(2, FAILS))
    assert isinstance(failed, ClientFailedError)
    assert "no battery" in str(failed)
    assert len(str(failed).splitlines()) == 1
    actor.ping()
    late = actor.work(program, ONE, of(2, HANGS))
    assert isinstance(late, ClientFailedError)
    assert "longer than 12 s" in str(late)
    assert not psutil.pid_exists(facts.worker_pid)  # It would keep counting.
    actor.ping()
    assert actor.work(program, ONE, of(4)).sums == sums(40, 1)


class EndedError(Exception):
    """Replaces the end of the process."""


@pytest.mark.slow
def test_a_node_whose_worker_is_gone_ends_before_its_next_slice(actor, monkeypatch):
    def end(code):
        raise EndedError

    monkeypatch.setattr(os, "_exit", end)
    (tff_worker,) = psutil.Process(actor.start([]).worker_pid).children()
    folder = pathlib.Path(actor._worker.folder)
    tff_worker.kill()
    actor._worker._relay.wait()
    assert not folder.exists()
    with pytest.raises(EndedError):
        actor.ping()
    with pytest.raises(EndedError):  # The folder for the states is gone.
        actor.work(build_program(), ONE, of(2)._replace(states=[b"state"]))
