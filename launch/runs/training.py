"""Trains, exports and evaluates a run, and writes its results, for `pretrain` and `centralized`."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import flags

from datasets.image_dataset import ImageDataset, Split
from launch.options import model as model_options
from launch.outputs import plots, run_folder
from launch.pages import run_page, tensorboard_files
from launch.probes import monitoring, personalized, probing, result_text
from launch.runs.best_encoder import BestEncoder
from tff_ssl.deployment import saved_model
from tff_ssl.evaluation import frozen
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation import metrics_log, state_files
from tff_ssl.simulation.training_loop import Simulation, TrainingLoop


class ClientModels(NamedTuple):
    """The clients' own models of a run, as far as they are evaluated.

    Attributes:
      num_clients: Number of clients.
      models: Model of each client if clients have different architectures; else None.
      evaluated: Client whose model stands for the run; None where it is not that of a certain
        client.
      untrained_have_models: Whether clients that never trained get a model from others; otherwise
        their models are not evaluated.
    """

    num_clients: int
    models: Sequence[DualEncoder] | None = None
    evaluated: int | None = None
    untrained_have_models: bool = False


def train_and_probe(
    simulation: Simulation,
    model: Model,
    dataset: ImageDataset,
    folder: pathlib.Path,
    args: flags.FlagValues,
    fields: dict[str, Any],
    closing: str = "",
    pictures: Sequence[str] = (),
    client_models: ClientModels | None = None,
    clients_train: Split | None = None,
) -> None:
    """Trains to the last round, writes the encoder, `result.json` and `run.html`, and prints.

    Args:
      simulation: Simulation of the run.
      model: Model of the run.
      dataset: Images for the monitor and the probes.
      folder: Folder of the run.
      args: The flags.
      fields: Further fields of each entry of `result.json`; `train_images` is the number of images
        that the model is trained on.
      closing: Text that is printed after the results; empty for none.
      pictures: Names of the pictures that have been drawn already.
      client_models: The clients' own models; None for a run without clients.
      clients_train: Training images as their clients see them; None if they are those of `dataset`.
    """
    encode = saved_model.encoder_function(model, model_options.view_size(dataset, args))
    monitor, best = monitoring.build_monitor(dataset, encode, simulation.encoder_weights), None
    if args.encoder_round == "best":
        best = BestEncoder(folder / "best_encoder.npz", monitor, simulation.encoder_weights)
    loop = TrainingLoop(
        output_dir=folder,
        rounds=args.rounds,
        checkpoint_every=args.checkpoint_every,
        monitor_every=args.eval_every,
        monitor=best.monitor if best else monitor,
    )
    state = loop.run(simulation, args.seed)
    weights = simulation.encoder_weights(state)
    if best:
        weights = best.weights(weights)
    _export(folder, dataset, model, weights, args)
    rank = monitoring.rank_of(dataset, functools.partial(encode, weights))
    untrained = monitoring.rank_of(dataset, functools.partial(encode, model.init(args.seed)))
    fields = fields | {"effective_rank": rank, "effective_rank_untrained": untrained}
    client_models = client_models or ClientModels(0)
    trained_rounds = metrics_log.trained_rounds(
        folder / "client_metrics.csv", client_models.num_clients
    )
    print("evaluating the model", flush=True)
    evaluation = _Evaluation(dataset, fields["train_images"], args)
    results = evaluation.results(model, encode, weights, probing.parse_baselines(args))
    if client_models.evaluated is not None:
        client = client_models.evaluated
        note = {"client": client, "trained_rounds": int(trained_rounds[client])}
        results = [result | note for result in results]
    chosen, skipped = _choose_clients(client_models, trained_rounds, args)
    client_results = _evaluate_clients(
        simulation, state, chosen, client_models.models or model, (model, weights, results),
        evaluation, folder,
    )  # fmt: skip
    results = results + _over_clients(client_results, chosen, trained_rounds, client_models.models)
    damaged = state_files.damaged_states(folder, ("client_states", "rad"))
    if damaged:
        fields = fields | {"damaged_client_states": damaged}
    run_folder.write_json(folder / "result.json", [result | fields for result in results])
    plots.draw_curves(folder / "metrics.csv", folder / "curves.png")
    encoders = {
        run_page.TRAINED: functools.partial(encode, weights),
        run_page.UNTRAINED: functools.partial(encode, model.init(args.seed)),
    }
    page = _write_page(folder, dataset, clients_train or dataset.train, encoders, args)
    print()
    print(result_text.format_results(results) if results else _no_probe(dataset))
    lines = [
        *skipped,
        *result_text.rank_lines(rank, untrained),
        *result_text.comparison_lines(results),
    ]
    print("\n" + "\n".join(lines))
    if closing:
        print(f"\n{closing}")
    clients = "clients/ (their encoders), " if client_results else ""
    print(
        f"\nwritten to {folder}/: {page}encoder/ (SavedModel), {clients}result.json, metrics.csv, "
        f"{', '.join(['curves.png', *pictures])}, tensorboard/, checkpoints/, config.json"
    )


def _no_probe(dataset: ImageDataset) -> str:
    """A line on why there are no results."""
    missing = "labels" if max(dataset.train.labels) < 0 else "test images"
    return f"no probe, because the data set has no {missing}"


def _write_page(
    folder: pathlib.Path,
    dataset: ImageDataset,
    clients_train: Split,
    encoders: Mapping[str, monitoring.Encode],
    args: flags.FlagValues,
) -> str:
    """Writes `run.html`, and its views and encodings for TensorBoard.

    The run has been evaluated and written before: whatever goes wrong here is printed in a line.

    Returns:
      `run.html` with a comma for the list of files; an empty text if there is no page.
    """
    print("drawing run.html", flush=True)
    try:
        make_views = model_options.two_views(dataset, args, args.objective)
        shown = run_page.compute(dataset, clients_train, make_views, encoders, args.seed)
        run_page.write(folder, folder, shown, dataset.class_names)
        tensorboard_files.write(folder / "tensorboard", shown, dataset.class_names, args.rounds)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        print(
            f"note: run.html cannot be made ({type(error).__name__}: {reason}); the run itself is "
            f"complete, and python -m launch.visualize --run={folder} makes the page again",
            flush=True,
        )
        return ""
    return "run.html (open it in a browser), "


def _choose_clients(
    client_models: ClientModels, trained_rounds: npt.NDArray[np.int64], args: flags.FlagValues
) -> tuple[list[int], list[str]]:
    """Chooses the first `--personalized_clients` clients, without those that never trained.

    Args:
      client_models: The clients' own models.
      trained_rounds: Number of rounds in which each client trained, int64 [clients].
      args: The flags.

    Returns:
      Indices of the clients; and a line on clients that are left out, if there are any.
    """
    wanted = getattr(args, "personalized_clients", 0)
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


class _Evaluation(NamedTuple):
    """The evaluation at the end of a run.

    Attributes:
      dataset: Labelled images.
      train_images: Number of images that the model was trained on.
      args: The flags.
    """

    dataset: ImageDataset
    train_images: int
    args: flags.FlagValues

    def results(
        self,
        model: Model,
        encode: tf.types.experimental.GenericFunction,
        weights: Weights,
        baselines: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Evaluates a model by linear probes, or by its classifier if it is supervised.

        Args:
          model: The model.
          encode: (weights, images) -> encodings of the model.
          weights: Weights of the model.
          baselines: Names of the baselines that are evaluated on the same labels.

        Returns:
          Entries of `result.json`.
        """
        dataset, args = self.dataset, self.args
        if model.classes:
            size = model_options.view_size(dataset, args)
            return probing.classifier_results(dataset, model, weights, self.train_images, size)
        untrained = functools.partial(encode, model.init(args.seed))
        trained = functools.partial(encode, weights)
        return probing.probe(dataset, trained, untrained, baselines, args)


def _evaluate_clients(
    simulation: Simulation,
    state: Any,
    clients: Sequence[int],
    models: Model | Sequence[DualEncoder],
    evaluated: tuple[Model, Weights, list[dict[str, Any]]],
    evaluation: _Evaluation,
    folder: pathlib.Path,
) -> list[list[dict[str, Any]]]:
    """Writes clients' own models to `clients/`, and evaluates them.

    If the run keeps the models after local training, they are written to `clients/K/local/`.

    Args:
      simulation: Simulation of the run.
      state: State after the last round.
      clients: Indices of the clients.
      models: Model of all clients, or a sequence with the model of each client.
      evaluated: Model, weights and results that stand for the run; a client's model that equals it
        is not evaluated again.
      evaluation: The evaluation at the end of the run.
      folder: Folder of the run.

    Returns:
      Entries of `result.json` for each client, with the baselines of its own model.
    """
    dataset, _, args = evaluation
    encoders: dict[Model, Any] = {}
    baselines = {evaluated[0]: evaluated[2]}  # Results that hold the baselines, by model.
    results = []
    for client in clients:
        model = models[client] if isinstance(models, Sequence) else models
        if model not in encoders:
            size = model_options.view_size(dataset, args)
            encoders[model] = saved_model.encoder_function(model, size)
        weights = simulation.encoder_weights(state, str(client))
        client_folder = folder / "clients" / str(client)
        _export(client_folder, dataset, model, weights, args)
        local = simulation.local_weights(state, client)
        if local is not None:
            _export(client_folder / "local", dataset, model, local, args)
        if frozen.equal(weights, evaluated[1]):
            print(f"the model of client {client} is the one that stands for the run", flush=True)
            results.append(evaluated[2])
            continue
        print(f"evaluating the model of client {client}", flush=True)
        names = [] if model in baselines else probing.parse_baselines(args)
        entries = evaluation.results(model, encoders[model], weights, names)
        with_baselines = baselines.setdefault(model, entries)
        results.append(
            [
                entry | {"baselines": other["baselines"]}
                for entry, other in zip(entries, with_baselines, strict=True)
            ]
        )
    return results


def _over_clients(
    results: Sequence[list[dict[str, Any]]],
    clients: Sequence[int],
    trained_rounds: npt.NDArray[np.int64],
    models: Sequence[DualEncoder] | None,
) -> list[dict[str, Any]]:
    """Entries of `result.json` over the clients that were evaluated, and over each architecture.

    Args:
      results: Entries of each of these clients.
      clients: Indices of the clients.
      trained_rounds: Number of rounds in which each client of the run trained.
      models: Model of each client of the run if clients have different architectures; else None.
    """
    rounds = [int(trained_rounds[client]) for client in clients]
    entries = personalized.over_clients(results, clients, rounds)
    if models:
        encoders = [models[client].encoder for client in clients]
        entries += personalized.over_architectures(results, clients, rounds, encoders)
    return entries


def _export(
    folder: pathlib.Path,
    dataset: ImageDataset,
    model: Model,
    weights: Weights,
    args: flags.FlagValues,
) -> None:
    """Writes a model's encoder to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    height, width, channels = dataset.train.images.shape[1:]
    shape, size = (height, width, channels), model_options.view_size(dataset, args)
    saved_model.save_encoder(folder / "encoder", model, weights, shape, size)
