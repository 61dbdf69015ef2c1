"""Evaluates a frozen encoder: linear probes or a kNN classifier, beside the untrained encoder and
raw pixels.

--run is the folder of a pretraining run, whose data and model flags then hold unless given anew, or
the folder of a SavedModel encoder.
"""

import json
import pathlib
from typing import Any

from absl import flags

import launch.flags
from launch import app

launch.flags.define_common_flags()
launch.flags.define_data_flags()
launch.flags.define_model_flags()
launch.flags.define_probe_flags()
flags.DEFINE_string("run", None, "Folder of a pretraining run, or of a SavedModel encoder.")
flags.DEFINE_enum("protocol", "linear", ["linear", "knn"], "What to do with the encoder.")
flags.adopt_module_key_flags(launch.flags)

_OF_THE_RUN = (
    "dataset", "data_dir", "image_size", "encoder", "projector", "norm", "view_size", "seed",
)  # fmt: skip


def main() -> None:
    args = flags.FLAGS
    from tff_ssl.errors import ConfigurationError

    if not args.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    folder = pathlib.Path(args.run)
    encoder_folder = _take_settings(folder, args)
    _evaluate(encoder_folder, pathlib.Path(args.output_dir or folder), args)


def _take_settings(folder: pathlib.Path, args: flags.FlagValues) -> pathlib.Path:
    """Takes over a run's flags that are not given anew; returns the folder of the encoder."""
    from tff_ssl.errors import ConfigurationError

    config = folder / "config.json"
    if not config.exists():
        return folder
    try:
        settings = json.loads(config.read_text())["flags"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{config} cannot be read: {error}") from error
    for name in _OF_THE_RUN:
        if not args[name].present and name in settings:
            args[name].value = settings[name]
    return folder / "encoder"


def _evaluate(encoder_folder: pathlib.Path, output: pathlib.Path, args: flags.FlagValues) -> None:
    import functools

    from launch import data, probing, run_folder
    from tff_ssl import export

    encode = export.load_encoder(encoder_folder)
    dataset = data.load_dataset(args)
    model = data.build_model(dataset, args)
    untrained = functools.partial(
        export.encoder_function(model, data.view_size(dataset, args)), model.init(args.seed)
    )
    path = output / f"result_{args.protocol}.json"
    print(f"{args.protocol} on {dataset.name} with the encoder in {encoder_folder}/", flush=True)
    results: list[dict[str, Any]]
    if args.protocol == "linear":
        results = probing.probe(dataset, encode, untrained, args)
    else:
        results = probing.knn_results(dataset, encode, untrained)
    output.mkdir(parents=True, exist_ok=True)
    run_folder.write_json(path, results)
    print(f"\n{probing.format_results(results)}\n\nwritten to {path}")


if __name__ == "__main__":
    app.run(main)
