"""Evaluation and export of a run's models after training: the global one and the clients' own."""

import functools
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from datasets.image_dataset import ImageDataset, Split
from launch.options import clients as client_options
from launch.options.image_config import ClientsConfig
from launch.options.run_config import RunConfig
from launch.probes import personalized, probing
from tff_ssl.deployment import saved_model
from tff_ssl.evaluation import frozen, labels
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation import metrics_log
from tff_ssl.simulation.training_loop import Simulation


class ClientModels(NamedTuple):
    """The clients' own models of a run."""

    num_clients: int  # Number of clients.
    # Model of each client if architectures differ; otherwise None.
    models: Sequence[DualEncoder] | None = None
    # Client whose model stands for the run; None if it is no client's.
    evaluated: int | None = None
    # Whether clients that never trained get a model from others; otherwise their models are not
    # evaluated.
    untrained_have_models: bool = False
    images: Sequence[npt.NDArray[np.int64]] = ()  # Indices of each client's training images.


def choose_clients(
    client_models: ClientModels, trained_rounds: npt.NDArray[np.int64], wanted: int
) -> tuple[list[int], list[str]]:
    """The first `wanted` clients that trained in some rounds, and a line on those left out."""
    if client_models.untrained_have_models:
        return list(range(wanted)), []
    chosen = np.flatnonzero(trained_rounds)[:wanted].tolist()
    passed = range(chosen[-1] if len(chosen) == wanted and chosen else client_models.num_clients)
    skipped = [client for client in passed if trained_rounds[client] == 0] if wanted else []
    if not skipped:
        return chosen, []
    return chosen, [
        f"{len(skipped)} clients never trained, and their models are not evaluated: "
        f"{', '.join(map(str, skipped))} (--personalized_clients={wanted})"
    ]


class Restored(NamedTuple):
    """The model of a run that was stopped."""

    model: Model  # Model with its heads.
    weights: Weights  # Its weights.
    # Side in pixels to which images are resized for the model; None for their own.
    view_size: int | None
    done: int  # Number of rounds, or of steps, of the checkpoint.


class Evaluation(NamedTuple):
    """The evaluation at the end of a run, on the images of a data set."""

    dataset: ImageDataset
    train_images: int  # Number of images that the model was trained on.
    config: RunConfig

    def results(
        self,
        model: Model,
        encode: tf.types.experimental.GenericFunction,
        weights: Weights,
        baselines: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Entries of `result.json` by linear probes, or by a supervised model's classifier."""
        dataset, own, seed = self.dataset, self.config.evaluation, self.config.seed
        if model.classes:
            size = self.config.model.view_size
            return probing.classifier_results(dataset, model, weights, self.train_images, size, own)
        has_start = isinstance(model, DualEncoder) and model.initial is not None
        if isinstance(model, DualEncoder) and model.brings_weights:
            baselines, has_start = probing.without_random_encoder(baselines), True
        trained = functools.partial(encode, weights)
        untrained = functools.partial(encode, model.random_init(seed))
        initial = functools.partial(encode, model.init(seed)) if has_start else None
        kinds = probing.feature_kinds(trained, untrained, baselines, initial)
        return probing.linear_probes(dataset, kinds, own, seed)


class Evaluated(NamedTuple):
    """A model that has been evaluated, and its entries of `result.json` with their baselines."""

    name: str  # Whose model it is.
    model: Model
    weights: Weights
    results: list[dict[str, Any]]


def evaluate_clients(
    simulation: Simulation,
    state: Any,
    clients: Sequence[int],
    client_models: ClientModels,
    of_run: Evaluated,
    evaluation: Evaluation,
    folder: pathlib.Path,
) -> list[list[dict[str, Any]]]:
    """Writes clients' own models to `clients/`, and evaluates them on images with their shift.

    Models after local training, if the run keeps them, are written to `clients/K/local/`. `of_run`
    is the model that stands for the run, evaluated on images without a shift. Returns each client's
    entries of `result.json`, with the baselines of its own model.
    """
    config, num_clients = evaluation.config, client_models.num_clients
    size, baselines = config.model.view_size, probing.baselines(config.evaluation)
    encoder_of = functools.cache(lambda model: saved_model.encoder_function(model, size))
    results = {}
    for shift, members in client_options.by_shift(clients, num_clients, config.clients).items():
        dataset = client_options.dataset_of_client(
            evaluation.dataset, members[0], num_clients, config.clients
        )
        done = [of_run] if shift is None else []
        for client in members:
            model = client_models.models[client] if client_models.models else of_run.model
            weights = simulation.encoder_weights(state, str(client))
            client_folder = folder / "clients" / str(client)
            export(client_folder, dataset, model, weights, size)
            local = simulation.local_weights(state, client)
            if local is not None:
                export(client_folder / "local", dataset, model, local, size)
            evaluate = functools.partial(
                evaluation._replace(dataset=dataset).results, model, encoder_of(model), weights
            )
            name = f"client {client}"
            done.append(_evaluate_client(name, model, weights, done, evaluate, baselines))
            note = {} if shift is None else {"own_shift": config.clients.shift}
            results[client] = [entry | note for entry in done[-1].results]
    return [results[client] for client in clients]


def _evaluate_client(
    name: str,
    model: Model,
    weights: Weights,
    done: Sequence[Evaluated],
    evaluate: Callable[[Sequence[str]], list[dict[str, Any]]],
    baselines: Sequence[str],
) -> Evaluated:
    """Evaluates a client's own model, unless one of `done`, on the same images, equals it."""
    for other in done:
        if frozen.equal(weights, other.weights):
            print(f"the model of {name} is that of {other.name}", flush=True)
            return Evaluated(name, model, weights, other.results)
    print(f"evaluating the model of {name}", flush=True)
    of_model = [other.results for other in done if other.model == model]
    entries = evaluate([] if of_model else baselines)
    if of_model:
        pairs = zip(entries, of_model[0], strict=True)
        entries = [entry | {"baselines": other["baselines"]} for entry, other in pairs]
    return Evaluated(name, model, weights, entries)


def over_clients(
    results: Sequence[list[dict[str, Any]]],
    clients: Sequence[int],
    trained_rounds: npt.NDArray[np.int64],
    client_models: ClientModels,
    train: Split,
) -> list[dict[str, Any]]:
    """Entries of `result.json` over the evaluated clients, and over each architecture."""
    rounds = [int(trained_rounds[client]) for client in clients]
    classes = [_classes(train, client_models.images[client]) for client in clients]
    evaluated = personalized.EvaluatedClients(clients, rounds, classes)
    entries = personalized.over_clients(results, evaluated)
    if client_models.models:
        encoders = [client_models.models[client].encoder_name for client in clients]
        entries += personalized.over_architectures(results, evaluated, encoders)
    return entries


def _classes(train: Split, images: npt.NDArray[np.int64]) -> Collection[int] | None:
    """The classes of some training images; None if one of them has no label."""
    classes = set(train.labels[images].tolist())
    return None if labels.UNLABELLED in classes else classes


def export(
    folder: pathlib.Path, dataset: ImageDataset, model: Model, weights: Weights, size: int | None
) -> None:
    """Writes a model's encoder, for views of a size, to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    height, width, channels = dataset.train.images.shape[1:]
    shape = (height, width, channels)
    saved_model.save_encoder(folder / "encoder", model, weights, shape, size)


def cluster_fields(
    client_metrics: pathlib.Path, num_clients: int, config: ClientsConfig
) -> dict[str, float]:
    """`cluster_purity` with the clients' shifts as kinds; empty without shifts or clusters."""
    clusters = metrics_log.last_values(client_metrics, "cluster")
    if config.shift == "none" or not clusters:
        return {}
    by_shift = client_options.by_shift(list(clusters), num_clients, config)
    kinds = {client: kind for kind, members in by_shift.items() for client in members}
    return {"cluster_purity": personalized.purity([(clusters[k], kinds[k]) for k in clusters])}
