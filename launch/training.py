"""What `pretrain` and `centralized` do alike: announce, train, export, probe, report."""

import functools
import pathlib
from typing import Any

from absl import flags

from datasets.image_dataset import ImageDataset
from launch import data, picture, probing, run_folder
from tff_ssl import export, program
from tff_ssl.models.two_towers import Model
from tff_ssl.simulation import Simulation


def train_and_probe(
    simulation: Simulation,
    model: Model,
    dataset: ImageDataset,
    folder: pathlib.Path,
    args: flags.FlagValues,
    extra: dict[str, Any],
) -> None:
    """Trains to the last round, writes the encoder and `result.json`, and prints the comparison.

    Args:
      simulation: What trains.
      model: Its model.
      dataset: The images to monitor and probe with.
      folder: The run's folder.
      args: The flags.
      extra: What `result.json` should say of the run beside the probes.
    """
    size = data.view_size(dataset, args)
    encode = export.encoder_function(model, size)
    loop = program.Program(
        output_dir=folder,
        rounds=args.rounds,
        checkpoint_every=args.checkpoint_every,
        monitor_every=args.eval_every,
        monitor=probing.build_monitor(dataset, encode, simulation.encoder_weights),
    )
    state = loop.run(simulation, args.seed)
    weights = simulation.encoder_weights(state)
    height, width, channels = dataset.train.images.shape[1:]
    export.save_encoder(folder / "encoder", model, weights, (height, width, channels), size)
    if model.classes:
        results = probing.classifier_results(dataset, model, weights, size)
    else:
        results = _probe(dataset, model, encode, weights, args)
    run_folder.write_json(folder / "result.json", [result | extra for result in results])
    picture.draw_curves(folder / "metrics.csv", folder / "curves.png")
    print()
    print(probing.format_results(results) if results else "no labels, no probe")
    print(
        f"\nwritten to {folder}/: encoder/ (SavedModel), result.json, metrics.csv, curves.png, "
        "tensorboard/, checkpoints/, config.json"
    )


def _probe(dataset, model, encode, weights, args) -> list[dict[str, Any]]:
    print("probing the encoder, the untrained encoder and raw pixels", flush=True)
    return probing.probe(
        dataset,
        functools.partial(encode, weights),
        functools.partial(encode, model.init(args.seed)),
        args,
    )
