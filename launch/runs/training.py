"""What `pretrain` and `centralized` do alike: announce, train, export, probe, report."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from datasets.image_dataset import ImageDataset
from launch.options import data
from launch.outputs import plots, run_folder
from launch.probes import probing
from tff_ssl.deployment import saved_model
from tff_ssl.evaluation import frozen
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation import training_loop
from tff_ssl.simulation.with_server import Simulation, StatefulClientsSimulation


def train_and_probe(
    simulation: Simulation,
    model: Model,
    dataset: ImageDataset,
    folder: pathlib.Path,
    args: flags.FlagValues,
    extra: dict[str, Any],
    closing: str = "",
    pictures: Sequence[str] = (),
    client_models: Sequence[DualEncoder] | None = None,
) -> None:
    """Trains to the last round, writes the encoder and `result.json`, and prints the comparison.

    Args:
      simulation: What trains.
      model: Its model.
      dataset: The images to monitor and probe with.
      folder: The run's folder.
      args: The flags.
      extra: What `result.json` should say of the run beside the probes; `train_images` is the
        number of images that it was trained on.
      closing: What is printed after the comparison.
      pictures: Files that have been drawn already.
      client_models: Each client's model, where they are not all `model`.
    """
    encode = saved_model.encoder_function(model, data.view_size(dataset, args))
    loop = training_loop.Program(
        output_dir=folder,
        rounds=args.rounds,
        checkpoint_every=args.checkpoint_every,
        monitor_every=args.eval_every,
        monitor=probing.build_monitor(dataset, encode, simulation.encoder_weights),
    )
    state = loop.run(simulation, args.seed)
    weights = simulation.encoder_weights(state)
    _export(folder, dataset, model, weights, args)
    print("evaluating the model", flush=True)
    seen = extra["train_images"]
    results = _evaluate(dataset, model, encode, weights, seen, probing.parse_baselines(args), args)
    models = client_models or model
    own = _personalized(simulation, state, dataset, models, seen, (weights, results), folder, args)
    results = results + probing.over_clients(own)
    if client_models:
        results = results + probing.over_architectures(own, [m.encoder for m in client_models])
    run_folder.write_json(folder / "result.json", [result | extra for result in results])
    plots.draw_curves(folder / "metrics.csv", folder / "curves.png")
    print()
    print(probing.format_results(results) if results else "no labels, no probe")
    if closing:
        print(f"\n{closing}")
    clients = "clients/ (their encoders), " if own else ""
    print(
        f"\nwritten to {folder}/: encoder/ (SavedModel), {clients}result.json, metrics.csv, "
        f"{', '.join(['curves.png', *pictures])}, tensorboard/, checkpoints/, config.json"
    )


def _evaluate(dataset, model, encode, weights, seen, baselines, args) -> list[dict[str, Any]]:
    if model.classes:
        size = data.view_size(dataset, args)
        return probing.classifier_results(dataset, model, weights, seen, size)
    untrained = functools.partial(encode, model.init(args.seed))
    return probing.probe(dataset, functools.partial(encode, weights), untrained, baselines, args)


def _personalized(
    simulation,
    state,
    dataset,
    models: Model | Sequence[Model],
    seen: int,
    of_global: tuple[Weights, list[dict[str, Any]]],
    folder,
    args,
) -> list[list[dict[str, Any]]]:
    """The first clients' own models: written to `clients/`, and evaluated like the global one.

    A client's model may be the global one, as of `fedbn` without batch norm; it is then not
    evaluated again.

    Beside them, in `clients/K/local/`, the models as their local training left them, where kept.
    """
    encoders: dict[Model, Any] = {}
    results = []
    for client in range(getattr(args, "personalized_clients", 0)):
        model = models[client] if isinstance(models, Sequence) else models
        if model not in encoders:
            encoders[model] = saved_model.encoder_function(model, data.view_size(dataset, args))
        encode = encoders[model]
        weights = simulation.encoder_weights(state, str(client))
        own = folder / "clients" / str(client)
        _export(own, dataset, model, weights, args)
        local = None
        if isinstance(simulation, StatefulClientsSimulation):
            local = simulation.local_weights(state, client)
        if local is not None:
            _export(own / "local", dataset, model, local, args)
        if frozen.equal(weights, of_global[0]):
            print(f"the model of client {client} is the global one", flush=True)
            results.append(of_global[1])
            continue
        print(f"evaluating the model of client {client}", flush=True)
        results.append(_evaluate(dataset, model, encode, weights, seen, [], args))
    return results


def _export(folder: pathlib.Path, dataset: ImageDataset, model: Model, weights, args) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    height, width, channels = dataset.train.images.shape[1:]
    shape, size = (height, width, channels), data.view_size(dataset, args)
    saved_model.save_encoder(folder / "encoder", model, weights, shape, size)
