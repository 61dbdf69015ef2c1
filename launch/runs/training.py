"""Trains, exports and evaluates a run, and writes its results, for `pretrain` and `centralized`."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import flags

from datasets.image_dataset import ImageDataset
from launch.options import model as model_options
from launch.outputs import plots, run_folder
from launch.probes import probing
from launch.runs.best_encoder import BestEncoder
from tff_ssl.deployment import saved_model
from tff_ssl.evaluation import frozen
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation.training_loop import Simulation, TrainingLoop


def train_and_probe(
    simulation: Simulation,
    model: Model,
    dataset: ImageDataset,
    folder: pathlib.Path,
    args: flags.FlagValues,
    fields: dict[str, Any],
    closing: str = "",
    pictures: Sequence[str] = (),
    client_models: Sequence[DualEncoder] | None = None,
) -> None:
    """Trains to the last round, writes the encoder and `result.json`, and prints the results.

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
      client_models: Model of each client if clients have different architectures; else None.
    """
    encode = saved_model.encoder_function(model, model_options.view_size(dataset, args))
    monitor, best = probing.build_monitor(dataset, encode, simulation.encoder_weights), None
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
    rank = probing.rank_of(dataset, functools.partial(encode, weights))
    untrained = probing.rank_of(dataset, functools.partial(encode, model.init(args.seed)))
    fields = fields | {"effective_rank": rank, "effective_rank_untrained": untrained}
    print("evaluating the model", flush=True)
    evaluation = _Evaluation(dataset, fields["train_images"], args)
    results = evaluation.results(model, encode, weights, probing.parse_baselines(args))
    client_results = _evaluate_clients(
        simulation, state, client_models or model, (weights, results), evaluation, folder
    )
    results = results + probing.over_clients(client_results)
    if client_models:
        encoders = [client_model.encoder for client_model in client_models]
        results = results + probing.over_architectures(client_results, encoders)
    run_folder.write_json(folder / "result.json", [result | fields for result in results])
    if best:
        best.delete()
    plots.draw_curves(folder / "metrics.csv", folder / "curves.png")
    print()
    print(probing.format_results(results) if results else "no labels, no probe")
    print("\n" + "\n".join(probing.rank_lines(rank, untrained)))
    if closing:
        print(f"\n{closing}")
    clients = "clients/ (their encoders), " if client_results else ""
    print(
        f"\nwritten to {folder}/: encoder/ (SavedModel), {clients}result.json, metrics.csv, "
        f"{', '.join(['curves.png', *pictures])}, tensorboard/, checkpoints/, config.json"
    )


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
    models: Model | Sequence[DualEncoder],
    global_model: tuple[Weights, list[dict[str, Any]]],
    evaluation: _Evaluation,
    folder: pathlib.Path,
) -> list[list[dict[str, Any]]]:
    """Writes the models of the personalized clients to `clients/`, and evaluates them.

    If the run keeps the models after local training, they are written to `clients/K/local/`.

    Args:
      simulation: Simulation of the run.
      state: State after the last round.
      models: Model of all clients, or a sequence with the model of each client.
      global_model: Weights and results of the global model; a client's model that equals it is not
        evaluated again.
      evaluation: The evaluation at the end of the run.
      folder: Folder of the run.

    Returns:
      Entries of `result.json` for each personalized client.
    """
    dataset, _, args = evaluation
    encoders: dict[Model, Any] = {}
    results = []
    for client in range(getattr(args, "personalized_clients", 0)):
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
        if frozen.equal(weights, global_model[0]):
            print(f"the model of client {client} is the global one", flush=True)
            results.append(global_model[1])
            continue
        print(f"evaluating the model of client {client}", flush=True)
        results.append(evaluation.results(model, encoders[model], weights, []))
    return results


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
