"""Trains, exports and evaluates a run, and writes its results, for `pretrain` and `centralized`."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from datasets import catalog
from datasets.image_dataset import ImageDataset, Split
from launch.options import model as model_options
from launch.options.run_config import RunConfig
from launch.outputs import commands, plots, run_folder
from launch.pages import embedding_page, run_page, tensorboard_files
from launch.probes import monitoring, personalized, probing, result_text
from launch.runs import final_evaluation
from launch.runs.best_encoder import BestEncoder
from launch.runs.final_evaluation import ClientModels, Evaluated, Evaluation
from tff_ssl.deployment import saved_model
from tff_ssl.losses import cka
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation import metrics_log, state_files
from tff_ssl.simulation.training_loop import Simulation, TrainingLoop

# Local models are compared by their encodings of at most so many of their clients' images.
_COMPARED_IMAGES = 10_000


def train_and_probe(
    simulation: Simulation,
    model: Model,
    dataset: ImageDataset,
    folder: pathlib.Path,
    config: RunConfig,
    fields: dict[str, Any],
    closing: str = "",
    pictures: Sequence[str] = (),
    client_models: ClientModels | None = None,
    clients_train: Split | None = None,
) -> None:
    """Trains to the last round, writes the encoder, `result.json` and `run.html`, and prints.

    Args:
      dataset: Images for the monitor and the probes.
      fields: Further fields of each entry of `result.json`, among them `train_images`.
      closing: Text to print after the results.
      pictures: Names of pictures that are drawn already.
      client_models: The clients' own models; None for a run without clients.
      clients_train: Training images with their clients' shifts; None for those of `dataset`.
    """
    client_models, clients_train = client_models or ClientModels(0), clients_train or dataset.train
    trained = train(simulation, model, dataset, folder, config)
    encoders = {
        run_page.TRAINED: functools.partial(trained.encode, trained.weights),
        run_page.UNTRAINED: functools.partial(trained.encode, model.random_init(config.seed)),
    }
    rank, untrained = (monitoring.rank_of(dataset, encoder) for encoder in encoders.values())
    print("evaluating the model", flush=True)
    evaluation = Evaluation(dataset, fields["train_images"], config)
    results, of_clients, skipped = _evaluate(
        simulation, model, trained, client_models, clients_train, evaluation, folder
    )
    fields = fields | {"effective_rank": rank, "effective_rank_untrained": untrained} | of_clients
    named = result_text.with_class_names(results, dataset.class_names)
    run_folder.write_json(folder / "result.json", with_fields(named, fields))
    plots.draw_curves(folder / "metrics.csv", folder / "curves.png")
    page = _write_page(folder, dataset, clients_train, encoders, config)
    missing = "labels" if max(dataset.train.labels) < 0 else "test images"
    no_probe = f"no probe, because the data set has no {missing}"
    print(f"\n{result_text.format_results(results) if results else no_probe}")
    ranks, warnings = result_text.rank_lines(rank, untrained), result_text.comparison_lines(results)
    print("\n" + "\n".join([*skipped, *ranks, *warnings, *_advice(folder, dataset, config)]))
    if closing:
        print(f"\n{closing}")
    clients = "clients/ (their encoders), " if (folder / "clients").is_dir() else ""
    print(
        f"\nwritten to {folder}/: {page}encoder/ (SavedModel), {clients}result.json, metrics.csv, "
        f"{', '.join(['curves.png', *pictures])}, tensorboard/, checkpoints/, config.json"
    )


def _advice(folder: pathlib.Path, dataset: ImageDataset, config: RunConfig) -> list[str]:
    """A note on pretrained weights, for RGB images of one's own that start without them."""
    is_rgb = dataset.train.images.shape[-1] == 3  # As the images of ImageNet.
    if not catalog.is_own(dataset.name) or not is_rgb or config.model.init_from:
        return []
    note = (
        "note: few photographs are often encoded better from pretrained weights "
        "(--init_from=efficientnet_lite0)"
    )
    if not probing.has_labels(dataset):
        return [note]
    command = commands.module("launch.evaluate", f"--run={folder}", "--baselines=imagenet_encoder")
    return [f"{note}; what they give without training: {command}"]


def with_fields(results: Sequence[dict[str, Any]], fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of `result.json`: results, each with the fields of the run.

    If nothing evaluates the run, one entry without an accuracy has the fields.
    """
    return [entry | fields for entry in results or [{"protocol": "none", "labels": 0}]]


class Trained(NamedTuple):
    """A run after its last round."""

    state: Any
    last: Weights  # Of the state.
    weights: Weights  # To evaluate.
    encode: Any


def train(
    simulation: Simulation,
    model: Model,
    dataset: ImageDataset,
    folder: pathlib.Path,
    config: RunConfig,
) -> Trained:
    """Trains to the last round, and writes the encoder."""
    encode = saved_model.encoder_function(model, config.model.view_size)
    monitor, best = monitoring.build_monitor(dataset, encode, simulation.encoder_weights), None
    if config.evaluation.encoder_round == "best":
        best = BestEncoder(folder / "best_encoder.npz", monitor, simulation.encoder_weights)
    loop = TrainingLoop(
        output_dir=folder,
        rounds=config.rounds,
        checkpoint_every=config.output.checkpoint_every,
        monitor_every=config.evaluation.eval_every,
        monitor=best.monitor if best else monitor,
        configuration=run_folder.training_digest(folder),
    )
    state = loop.run(simulation, config.seed)
    last = simulation.encoder_weights(state)
    weights = best.weights(last) if best else last
    final_evaluation.export(folder, dataset, model, weights, config.model.view_size)
    return Trained(state, last, weights, encode)


def _evaluate(
    simulation: Simulation,
    model: Model,
    trained: Trained,
    client_models: ClientModels,
    clients_train: Split,
    evaluation: Evaluation,
    folder: pathlib.Path,
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Results of the run's model and clients' own; fields on clients; a line on those left out."""
    config, num_clients = evaluation.config, client_models.num_clients
    client_metrics = folder / "client_metrics.csv"
    trained_rounds = metrics_log.trained_rounds(client_metrics, num_clients)
    baselines = probing.baselines(config.evaluation)
    results = evaluation.results(model, trained.encode, trained.weights, baselines)
    if client_models.evaluated is not None:
        client = client_models.evaluated
        note = {"client": client, "trained_rounds": int(trained_rounds[client])}
        results = [result | note for result in results]
    wanted = config.evaluation.personalized_clients
    chosen, skipped = final_evaluation.choose_clients(client_models, trained_rounds, wanted)
    of_run = Evaluated("the run", model, trained.weights, results)
    of_clients = final_evaluation.evaluate_clients(
        simulation, trained.state, chosen, client_models, of_run, evaluation, folder
    )
    results = results + final_evaluation.over_clients(
        of_clients, chosen, trained_rounds, client_models, clients_train
    )
    fields: dict[str, Any] = {}
    if client_models.evaluated is None:
        kept = [simulation.local_weights(trained.state, client) for client in chosen]
        local = [weights for weights in kept if weights is not None]
        if local:
            own = np.concatenate([client_models.images[client] for client in chosen])
            compared = own[:: len(own) // _COMPARED_IMAGES + 1]
            fields |= _compare_local(model, trained, local, clients_train.images[compared])
    fields |= final_evaluation.cluster_fields(client_metrics, num_clients, config.clients)
    damaged = state_files.damaged_states(folder, ("client_states", "rad"))
    return results, fields | ({"damaged_client_states": damaged} if damaged else {}), skipped


def _compare_local(
    model: Model, trained: Trained, local: Sequence[Weights], images: np.ndarray
) -> dict[str, float]:
    """Distances of weights, and CKA of encodings of images, of local models and the global one."""
    everyone = (trained.last, *local)
    weights = [model.without_heads(one)[1].trainable for one in everyone]
    encoded = [
        monitoring.encodings(functools.partial(trained.encode, one), images) for one in everyone
    ]
    return {
        **personalized.compare_local(
            "distance", personalized.weight_distance, weights[0], weights[1:]
        ),
        **personalized.compare_local("cka", cka.linear_cka, encoded[0], encoded[1:]),
    }


def _write_page(
    folder: pathlib.Path,
    dataset: ImageDataset,
    clients_train: Split,
    encoders: Mapping[str, monitoring.Encode],
    config: RunConfig,
) -> str:
    """Writes the run's pages, and views and encodings for TensorBoard; names for a list, or "".

    The run is complete and written, so that any error here is only a printed note.
    """
    print("drawing run.html", flush=True)
    try:
        make_views = model_options.two_views(config.model, config.seed)
        shown = run_page.compute(dataset, clients_train, make_views, encoders, config.seed)
        run_page.write(folder, folder, shown)
        tensorboard_files.write(folder / "tensorboard", shown, config.rounds)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        print(
            f"note: run.html cannot be made ({type(error).__name__}: {reason}); the run itself is "
            f"complete; try again with: {commands.module('launch.visualize', f'--run={folder}')}",
            flush=True,
        )
        return ""
    more = f"{embedding_page.FILE_NAME}, " if shown.overview else ""
    return f"run.html (open it in a browser), {more}"
