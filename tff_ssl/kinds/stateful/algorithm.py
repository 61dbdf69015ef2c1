"""The kind of algorithms with a server and clients that keep a state between rounds.

Their round has typed states:

  next(server_state@SERVER, client_states@CLIENTS, client_data@CLIENTS)
    -> (server_state@SERVER, client_states@CLIENTS, client_metrics@CLIENTS, metrics@SERVER)

The server broadcasts its model; every client of the cohort works on its examples and its state; the
server forms weighted means of the clients' contributions, may collect rows of each client
(`collected_rows`), and updates its model. The algorithm defines the clients' work and the server's
update. `simulation.state_files` keeps the states between rounds.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_ssl.kinds.protocol import FederatedAlgorithm, Need, RoundToLower, RunSetting
from tff_ssl.kinds.stateful.simulation import StatefulClientsRun
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation import state_files
from tff_ssl.templates import collected_rows
from tff_ssl.templates.client_output import ClientOutput, output_if_finite, server_metrics
from tff_ssl.templates.local_training import LocalModel, LocalTraining
from tff_ssl.templates.micro_batches import read_all
from tff_ssl.templates.server_step import next_round_number
from tff_ssl.templates.stages import Mean, Stage, Upload


class ServerState(NamedTuple):
    """The state of the server."""

    round_number: Any  #: Number of the next round, int64; views and schedules depend on it.
    model: Any  #: Model of the server, of the algorithm's type.
    aggregators: Any  #: State of each mean's aggregator.


class RoundOutput(NamedTuple):
    """The result of `next`."""

    state: Any  #: New `ServerState`, at the server.
    client_states: Any  #: New states of the clients, at the clients.
    client_metrics: Any  #: Metrics by name, at the clients.
    metrics: Any  #: Means and sums of the metrics, at the server.


@dataclasses.dataclass(frozen=True)
class StatefulClients(FederatedAlgorithm):
    """An algorithm with a server and clients that keep a state between rounds."""

    kind: ClassVar[str] = "stateful_clients"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS})
    has_client_models: ClassVar[bool] = True

    #: A `tff.templates.IterativeProcess`, whose `next` is described in the module.
    process: tff.templates.IterativeProcess
    initial_model: Callable[[int], Any]  #: Seed -> the server's model before the first round.
    #: Seed -> the state of a client that has not taken part yet.
    initial_client_state: Callable[[int], Any]
    #: Server's model -> weights of the global model; None if there is none.
    global_weights: Callable[[Any], Weights] | None
    #: (server's model, a client's state) -> weights of the client's own model.
    client_weights: Callable[[Any, Any], Weights]
    #: A client's state -> the weights after its last local training; None if states do not hold
    #: them, or if they are the client's own model.
    local_weights: Callable[[Any], Weights] | None
    downloads: Sequence[tff.Type]  #: Types that a client receives in a round.
    uploads: Sequence[tff.Type]  #: Types that a client sends in a round.
    #: The round as functions of tensors; empty if the server needs more than the means.
    plain_stages: Sequence[Stage] = ()
    #: The server's model of a run -> the one with which clients start that have no states.
    for_new_clients: Callable[[Any], Any] = lambda model: model

    def initial_states(self, seed: int, trained: Any = None) -> tuple[Any, Any]:
        model = (
            self.initial_model(seed)
            if trained is None
            else self.for_new_clients(trained.server.model)
        )
        server = self.process.initialize()._replace(model=tree.map_structure(np.asarray, model))
        return server, tree.map_structure(np.asarray, self.initial_client_state(seed))

    def encoder_weights(self, server_state: Any) -> Weights | None:
        return self.global_weights and self.global_weights(server_state.model)

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        process = self.process
        return {
            "round": RoundToLower("the whole round", process.initialize, process.next),
            "round_with_stored_states": RoundToLower(
                "the round whose clients keep their states in files of their own",
                process.initialize,
                state_files.round_with_stored_states(process.next),
            ),
        }

    def plan_run(self, setting: RunSetting) -> StatefulClientsRun:
        return StatefulClientsRun(self, setting)


class ClientStart(NamedTuple):
    """The start of a client's local training."""

    weights: Weights  #: Weights of the model to train.
    target: Weights  #: Weights of the target network; empty if there is none.
    notes: Any = ()  #: Values for the end of the round.


class ClientEnd(NamedTuple):
    """The values that a client keeps and sends after its local training."""

    state: Any  #: The client's new state.
    sent: Any  #: Contribution to the server's mean.
    metrics: Mapping[str, tf.Tensor]  #: Further metrics of the client, float32 by name.


def client_work_around_training(
    training: LocalTraining,
    start_round: Callable[[Any, Any], ClientStart],
    end_round: Callable[[Any, ClientStart, LocalModel], ClientEnd],
) -> Callable[[Any, tf.Tensor, Any, tf.data.Dataset], ClientOutput]:
    """Composes the `client_work` of a client that trains one model and sends one contribution.

    Args:
      training: Local training.
      start_round: (server's model, the client's state) -> `ClientStart`.
      end_round: (the client's state, its `ClientStart`, the trained model) -> `ClientEnd`.
    """

    def client_work(server_model, round_number, state, examples):
        batch = read_all(examples)
        samples = tf.shape(batch["example_id"])[0]
        start = start_round(server_model, state)
        trained = training.train(start.weights, start.target, round_number, batch)
        end = end_round(state, start, trained)
        updates = [(end.sent, training.client_weight(samples))]
        return output_if_finite(updates, end.state, state, trained, samples, end.metrics)

    return client_work


def _compose_process(
    first_model: tff.Computation,
    work: tff.Computation,
    server_update: Callable[..., Any],
    aggregators: Sequence[tff.templates.AggregationProcess],
    further_arguments: Callable[[tff.Value, tff.Value], dict[str, tff.Value]],
) -> tff.templates.IterativeProcess:
    """The process whose `next` is described in the module.

    `further_arguments` of the server's update are values@SERVER by name, from the server's state
    and the clients' outputs.
    """

    @tff.federated_computation
    def initialize():
        states = tff.federated_zip(tuple(a.initialize() for a in aggregators))
        round_number = tff.federated_value(np.int64(0), tff.SERVER)
        model = tff.federated_eval(first_model, tff.SERVER)
        return tff.federated_zip(ServerState(round_number, model, states))

    _, _, state_type, examples_type = work.type_signature.parameter

    @tff.federated_computation(
        initialize.type_signature.result,
        tff.types.FederatedType(state_type, tff.CLIENTS),
        tff.types.FederatedType(examples_type, tff.CLIENTS),
    )
    def next_round(server, client_states, client_data):
        model = tff.federated_broadcast(server.model)
        round_number = tff.federated_broadcast(server.round_number)
        output = tff.federated_map(work, (model, round_number, client_states, client_data))
        means = [
            a.next(server.aggregators[i], output.updates[i].update, output.updates[i].update_weight)
            for i, a in enumerate(aggregators)
        ]
        received = [server.model, tff.federated_zip(tuple(m.result for m in means))]
        further = further_arguments(server, output)
        if further:
            received.append(tff.federated_zip(collections.OrderedDict(further)))
        types = [value.type_signature.member for value in received]
        # TFF takes no functions with default values or a variable number of arguments.
        update_model = (
            tff.tensorflow.computation(lambda m, means, v: server_update(m, means, **v), *types)
            if further
            else tff.tensorflow.computation(lambda m, means: server_update(m, means), *types)
        )
        new_model = tff.federated_map(update_model, tuple(received))
        next_number = tff.federated_map(next_round_number, server.round_number)
        states = tff.federated_zip(tuple(m.state for m in means))
        state = tff.federated_zip(ServerState(next_number, new_model, states))
        return RoundOutput(state, output.state, output.metrics, server_metrics(output.metrics))

    return tff.templates.IterativeProcess(initialize, next_round)


def build_stateful_clients(
    *,
    initial_model: Callable[[int], Any],
    initial_client_state: Callable[[int], Any],
    client_work: Callable[[Any, tf.Tensor, Any, tf.data.Dataset], ClientOutput],
    server_update: Callable[..., Any],
    element_type: tff.Type,
    global_weights: Callable[[Any], Weights] | None,
    client_weights: Callable[[Any, Any], Weights],
    local_weights: Callable[[Any], Weights] | None = None,
    communicates: bool = True,
    sums_weights: bool = False,
    numbers_rounds: bool = False,
    collects_from: int = 0,
    aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
) -> StatefulClients:
    """Composes an algorithm from TensorFlow functions.

    Args:
      initial_model: Seed -> the server's model.
      initial_client_state: Seed -> a new client's state.
      client_work: (server's model, round number int64, the client's state, its examples) -> its
        `ClientOutput`; all shapes are fixed.
      server_update: (server's model, means of the updates) -> the server's new model. It must
        handle a mean without weight, which is NaN (`client_output.previous_if_empty`).
        `sums_weights`, `numbers_rounds` and `collects_from` give it further arguments, by name.
      element_type: Type of a client's example.
      global_weights, client_weights, local_weights: Attributes of `StatefulClients`.
      communicates: Whether clients send and receive anything after their first round.
      sums_weights: Whether `server_update` gets `weights`, the clients' total weight in each mean,
        float32.
      numbers_rounds: Whether `server_update` gets `round_number`, int64.
      collects_from: Number of clients of the population if they send rows (`ClientOutput.rows`);
        otherwise 0. `server_update` gets the rows as `rows`, float32 [collects_from, r, d], zeros
        for clients that sent none.
      aggregator: Aggregator of each mean; `MeanFactory` by default.
    """
    first_model = tff.tensorflow.computation(lambda: initial_model(0))
    first_state = tff.tensorflow.computation(lambda: initial_client_state(0))
    model_type, state_type = (c.type_signature.result for c in (first_model, first_state))

    @tff.tensorflow.computation(
        model_type, np.int64, state_type, tff.types.SequenceType(element_type)
    )
    @tf.function(autograph=False)
    def work(model, round_number, state, examples):
        return client_work(model, round_number, state, examples)

    output_type = work.type_signature.result
    updates = output_type.updates
    factory = aggregator or tff.aggregators.MeanFactory()
    aggregators = [factory.create(update.update, update.update_weight) for update in updates]

    def further_arguments(server, output):
        further = {}
        if sums_weights:
            weights = tuple(tff.federated_sum(u.update_weight) for u in output.updates)
            further["weights"] = tff.federated_zip(weights)
        if numbers_rounds:
            further["round_number"] = server.round_number
        if collects_from:
            further["rows"] = collected_rows.collect(output.rows, collects_from)
        return further

    takes_means_alone = not (sums_weights or numbers_rounds or collects_from)
    return StatefulClients(
        _compose_process(first_model, work, server_update, aggregators, further_arguments),
        initial_model,
        initial_client_state,
        global_weights,
        client_weights,
        local_weights,
        downloads=(model_type, tff.types.to_type(np.int64)) if communicates else (),
        # A client contributes to one of the means; its weight in the others is zero.
        uploads=(
            *(update.update for update in updates[: 1 if communicates else 0]),
            *([output_type.rows] if collects_from else []),
        ),
        plain_stages=(_plain_stage(client_work, server_update),) if takes_means_alone else (),
    )


def _plain_stage(
    client_work: Callable[..., ClientOutput], server_update: Callable[..., Any]
) -> Stage:
    """The round as functions of tensors, with plain means; see `build_stateful_clients`."""
    counts = ("samples", "dropped")

    def received(state):
        name = "weights" if isinstance(state.model, Weights) else "model"
        return {name: state.model, "round": state.round_number}

    def work(received, state, examples):
        output = client_work(*received.values(), state, examples)
        metrics = dict(output.metrics)
        weight = metrics.pop("weight")
        means = {f"sent_{i}": Mean(*update) for i, update in enumerate(output.updates)}
        means |= {name: Mean(metrics[name], weight) for name in metrics if name not in counts}
        return Upload(means, {name: metrics[name] for name in counts}, output.state)

    def finish(state, means, sums):
        updates = [mean for name, mean in means.items() if name.startswith("sent_")]
        model = server_update(state.model, tuple(mean.value for mean in updates))
        metrics = {name: m.value for name, m in means.items() if not name.startswith("sent_")}
        metrics |= {"samples": sums["samples"], "dropped_clients": sums["dropped"]}
        return state._replace(round_number=state.round_number + 1, model=model), metrics

    return Stage("update", received, work, finish)
