"""Evaluates an encoder beside the untrained encoder and raw pixels.

--run is the folder of a SavedModel encoder, or of a pretraining run, whose data and model flags
then hold unless they are given. Protocols:
  linear           a linear classifier on the frozen encoder, with few labels;
  knn              a nearest-neighbour classifier on the frozen encoder, with all labels;
  finetune         encoder and classifier trained together on few labels;
  semi_supervised  finetune with 1 % and 10 % of the labels;
  scratch          supervised training: finetune, but from an untrained encoder;
  transfer         linear, on another data set (--dataset) than the encoder was trained on.
"""

import pathlib
from typing import Any

from absl import flags

import launch.options.flags
from launch.options import app, numbers

launch.options.flags.define_common_flags()
launch.options.flags.define_image_flags()
launch.options.flags.define_model_flags()
launch.options.flags.define_probe_flags()
launch.options.flags.define_encoder_flags()
flags.DEFINE_string("run", None, "Folder of a pretraining run, or of a SavedModel encoder.")
flags.DEFINE_enum(
    "protocol",
    "linear",
    ["linear", "knn", "finetune", "semi_supervised", "scratch", "transfer"],
    "Protocol of the evaluation.",
)
flags.DEFINE_list(
    "label_fractions", ["0.01", "0.1"], "semi_supervised: fractions of the training labels."
)
numbers.bound_list("label_fractions", float, 1e-9, 1.0)
flags.DEFINE_list(
    "finetune_steps",
    [],
    "Number of steps of fine-tuning. Of several, the one counts that is best on the validation "
    "images (or on labels that were not drawn). Default: the DCCO paper's, 100 from 1600 labels "
    "on, else 40.",
)
numbers.bound_list("finetune_steps", int, 1)
flags.DEFINE_integer(
    "finetune_batch_size",
    None,
    "Number of labels in a step of fine-tuning. Default: the paper's, 256 from 1600 labels on, "
    "else 128.",
    lower_bound=1,
)
flags.DEFINE_list(
    "finetune_learning_rate",
    [],
    "Initial learning rate of fine-tuning (Adam). Of several, the best counts, as with "
    "--finetune_steps. Default: the paper's, 0.005.",
)
numbers.bound_list("finetune_learning_rate", float, 1e-9, 1e6)
flags.DEFINE_integer(
    "depth",
    None,
    "finetune, semi_supervised, scratch: number of blocks in a vision transformer's backbone, made "
    "by stacking the pretrained blocks (DeNAV). Default: as many as were pretrained.",
    lower_bound=1,
)
flags.adopt_module_key_flags(launch.options.flags)

# Protocols that train the encoder, and those for which the flags give the number of labels.
_TRAINING = ("finetune", "semi_supervised", "scratch")
_DRAWN = ("linear", "transfer", "finetune", "scratch")
# Flag -> the protocols that use it.
_ONLY_FOR = {
    "labels": _DRAWN, "labels_per_class": _DRAWN, "label_draws": (*_DRAWN, "semi_supervised"),
    "label_fractions": ("semi_supervised",), "finetune_steps": _TRAINING,
    "finetune_batch_size": _TRAINING, "finetune_learning_rate": _TRAINING, "depth": _TRAINING,
}  # fmt: skip
# Flags that are taken from the run.
_RUN_FLAGS = (
    "dataset", "data_dir", "image_size", "encoder", "projector", "towers", "norm",
    "projector_output_batch_norm", "view_size", "seed", "probe", "also_logistic", "per_case",
    "baselines",
)  # fmt: skip


def main() -> None:
    args = flags.FLAGS
    from tff_ssl.errors import ConfigurationError

    if not args.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    for name, protocols in _ONLY_FOR.items():
        if args[name].present and args.protocol not in protocols:
            raise ConfigurationError(
                f"--{name} is for --protocol={' or '.join(protocols)}, not {args.protocol}"
            )
    folder = pathlib.Path(args.run)
    encoder_folder, trained_on = _take_settings(folder, args)
    _evaluate(encoder_folder, trained_on, pathlib.Path(args.output_dir or folder), args)


def _take_settings(folder: pathlib.Path, args: flags.FlagValues) -> tuple[pathlib.Path, str | None]:
    """Sets the flags that are not given to those of the run, or of the encoder, in `folder`.

    Returns:
      The folder of the encoder, and the name of the data set that it was trained on, if known.
    """
    from launch.options import defaults
    from launch.outputs import run_folder
    from tff_ssl.errors import ConfigurationError

    settings = run_folder.read_flags(run_folder.run_of(folder))
    if not settings:
        network = _network_settings(folder)
        run_folder.take_over(network, network.keys(), args)
        return folder, None
    trained_on = settings.get("dataset")
    run_folder.take_over(settings, _RUN_FLAGS, args)
    if args.dataset != trained_on and not args["view_size"].present:
        args.view_size = defaults.view_size_of(
            trained_on, settings.get("view_size"), settings.get("image_size")
        )
    if settings.get("shift", "none") != "none":
        print("note: the run has --shift, and this evaluation is on images without it")
    if args.protocol == "transfer" and args.dataset == trained_on:
        raise ConfigurationError(
            f"--protocol=transfer needs another --dataset than the run's, {trained_on}"
        )
    return run_folder.encoder_of(folder), trained_on


def _network_settings(folder: pathlib.Path) -> dict[str, Any]:
    """The flags of the network in the folder of an encoder; none if it has no `weights.npz`."""
    from tff_ssl.deployment import encoder_weights
    from tff_ssl.models.two_towers import TwoTowers

    if not (folder / encoder_weights.FILE_NAME).exists():
        return {}
    model, _, image_shape, view_size = encoder_weights.read(folder)
    towers, tower = (model.pair, model.tower) if isinstance(model, TwoTowers) else ("one", model)
    settings: dict[str, Any] = {"encoder": tower.encoder, "norm": tower.norm, "towers": towers}
    if view_size or image_shape[0] == image_shape[1]:
        settings["view_size"] = view_size or image_shape[0]
    return settings


def _evaluate(
    encoder_folder: pathlib.Path,
    trained_on: str | None,
    output: pathlib.Path,
    args: flags.FlagValues,
) -> None:
    """Evaluates the encoder, and writes and prints the results."""
    from launch.options import adapting, data
    from launch.outputs import run_folder
    from launch.probes import result_text
    from tff_ssl.deployment import saved_model
    from tff_ssl.evaluation import frozen
    from tff_ssl.models import resnet

    encoder = saved_model.load_encoder(encoder_folder, args.run_saved_model_graph)
    if args.protocol == "transfer" and args.image_size is None:
        args.image_size = encoder.image_shape[0]
    dataset = data.load_dataset(args)
    adapting.fit_evaluation(dataset, args)
    shape = encoder.image_shape
    if args.protocol in _TRAINING and args.encoder in resnet.RESNETS:
        # A ResNet may be trained on images of another size than it was pretrained on.
        height, width = dataset.train.images.shape[1:3]
        shape = (height, width, shape[2])
    data.check_image_shape(dataset, shape, f"the encoder in {encoder_folder}")
    other_dataset = trained_on not in (None, args.dataset)
    name = f"{args.protocol}_{args.dataset.replace('/', '_')}" if other_dataset else args.protocol
    path = output / f"result_{name}.json"
    print(
        f"{args.protocol} on {dataset.name} with the encoder in {encoder_folder}/; the result goes "
        f"to {path}{', in the place of the one there' if path.exists() else ''}",
        flush=True,
    )
    is_new = not output.exists()
    run_folder.make(output)
    weights_before = encoder.weights
    try:
        results = _results(dataset, encoder, args)
    except BaseException:
        if is_new:
            output.rmdir()
        raise
    frozen.check_unchanged(weights_before, encoder.weights)
    if other_dataset:
        results = [result | {"pretrained_on": trained_on} for result in results]
    run_folder.write_json(path, results)
    lines = [result_text.format_results(results), *result_text.comparison_lines(results)]
    print("\n" + "\n\n".join([*lines, f"written to {path}"]))


def _results(dataset, encoder, args: flags.FlagValues) -> list[dict[str, Any]]:
    """The results of the protocol, one for each number of labels."""
    import functools

    from launch.options import model as model_options
    from launch.probes import probing
    from tff_ssl.deployment import saved_model
    from tff_ssl.errors import ConfigurationError

    baselines = probing.parse_baselines(args)
    model = model_options.build_model(dataset, args, "cco")
    untrained_weights = model.init(args.seed)
    network, _ = model.without_heads(untrained_weights)
    _check_architecture(network, encoder, baselines, args)
    if args.protocol in _TRAINING:
        return _finetune(dataset, network, encoder.weights, args)
    untrained = functools.partial(
        saved_model.encoder_function(model, model_options.view_size(dataset, args)),
        untrained_weights,
    )
    if args.protocol == "knn":
        return probing.knn_results(dataset, encoder, untrained, args)
    results = probing.probe(dataset, encoder, untrained, baselines, args)
    if not results:
        raise ConfigurationError(f"--dataset={args.dataset} has no labels or no test images")
    return [
        result | {"protocol": result["protocol"].replace("linear", args.protocol)}
        for result in results
    ]


def _check_architecture(network, encoder, baselines: list[str], args: flags.FlagValues) -> None:
    """Checks that the flags' network has the encoder's weights, if the protocol builds it.

    Raises:
      ConfigurationError: If it has not, and is trained or is the untrained baseline.
    """
    from tff_ssl.errors import ConfigurationError

    # Norms differ in the weights that are not trained alone.
    needed = [[s.shape for s in specs] for specs in
              (network.trainable_specs, network.non_trainable_specs)]  # fmt: skip
    if needed == [[w.shape for w in weights] for weights in encoder.weights]:
        return
    mismatch = (
        f"--encoder={args.encoder} with --norm={args.norm} is not the one in --run={args.run}"
    )
    if args.protocol in _TRAINING:
        raise ConfigurationError(mismatch)
    if "random_encoder" in baselines:
        raise ConfigurationError(
            f"{mismatch}, untrained: name that, or leave it out by --baselines=raw_pixels"
        )


def _finetune(dataset, network, weights, args: flags.FlagValues) -> list[dict[str, Any]]:
    """The results of a protocol that trains the encoder, `network` with `weights`."""
    from launch.probes import finetuning, probing
    from tff_ssl.errors import ConfigurationError
    from tff_ssl.models import stacking
    from tff_ssl.models.dual_encoder import DualEncoder

    if not isinstance(network, DualEncoder):
        raise ConfigurationError(f"--protocol={args.protocol} needs a run with --towers=one")
    if args.depth:
        try:
            network, weights = stacking.stacked(network, weights, args.depth)
        except ValueError as error:
            raise ConfigurationError(f"--depth={args.depth}: {error}") from error
    if args.protocol == "semi_supervised":
        labels = probing.cases_of(probing.counted(dataset, args).train, args).labels
        counts = finetuning.parse_fractions(args, labels[labels >= 0])
    else:
        counts = probing.parse_label_counts(args)
    return finetuning.finetune_results(dataset, network, weights, counts, args.protocol, args)


if __name__ == "__main__":
    app.run(main)
