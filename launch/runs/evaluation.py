"""Evaluates an encoder by one protocol, from its configuration to its results."""

import functools
import pathlib
from typing import Any

from datasets import case_split, catalog
from datasets.image_dataset import ImageDataset
from launch.options import adapting, data, defaults, encoders, resuming, settings
from launch.options import model as model_options
from launch.options.image_config import DataConfig
from launch.options.run_config import RunConfig
from launch.options.script_configs import EvaluateConfig
from launch.outputs import partition_record, run_folder
from launch.probes import finetuning, probing, result_text
from tff_ssl.algorithms import named_code
from tff_ssl.deployment import encoder_weights, saved_model
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.evaluation import frozen
from tff_ssl.models import resnet, stacking
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.models.two_towers import Model, TwoTowers

# Protocols that train the encoder, and those whose numbers of labels are flags.
_TRAINING = ("finetune", "semi_supervised", "scratch")
_DRAWN = ("linear", "held_out", "transfer", "finetune", "scratch")
# Flag -> the protocols that use it.
_ONLY_FOR = {
    "labels": _DRAWN, "labels_per_class": _DRAWN, "label_draws": (*_DRAWN, "semi_supervised"),
    "label_fractions": ("semi_supervised",), "finetune_steps": _TRAINING,
    "finetune_batch_size": _TRAINING, "finetune_learning_rate": _TRAINING, "depth": _TRAINING,
}  # fmt: skip
# Flags that are taken from the run.
_RUN_FLAGS = (
    *data.IMAGE_FLAGS, "encoder", "projector", "towers", "norm", "projector_output_batch_norm",
    "view_size", "seed", "probe", "also_logistic", "per_case", "baselines",
)  # fmt: skip
_LONGEST_NAME = 50  # Characters of a folder's name that the name of a result file repeats.


def evaluate(config: EvaluateConfig) -> None:
    """Evaluates an encoder, and writes and prints the results."""
    if not config.run:
        raise ConfigurationError("--run is missing: name the folder of a run or of an encoder")
    for name, protocols in _ONLY_FOR.items():
        if name in config.given and config.protocol not in protocols:
            raise ConfigurationError(
                f"--{name} is for --protocol={' or '.join(protocols)}, not {config.protocol}"
            )
    folder = pathlib.Path(config.run)
    output = pathlib.Path(config.output.output_dir or folder)
    config, encoder_folder, run = _take_settings(folder, config)
    encoder = saved_model.load_encoder(encoder_folder, config.run_saved_model_graph)
    if config.protocol == "transfer" and config.data.image_size is None:
        config = settings.replace(config, image_size=encoder.image_shape[0])
    data.check_folder(config.data.dataset, config.data.data_dir, config.given)
    dataset = data.load_dataset(config.data)
    other = _describe_other(dataset, config.data, run, run_folder.run_of(folder)) if run else {}
    if run and not other:
        _refuse_transfer(config, run)
    if config.protocol == "held_out":
        dataset = case_split.without_test(dataset)
    config = adapting.fit_evaluation(dataset, config)
    shape = encoder.image_shape
    if config.protocol in _TRAINING and config.model.encoder in resnet.RESNETS:
        # A ResNet may be fine-tuned on images of another size than it was pretrained on.
        height, width = dataset.train.images.shape[1:3]
        shape = (height, width, shape[2])
    data.check_image_shape(dataset, shape, f"the encoder in {encoder_folder}")
    path = output / _file_name(config, other)
    print(
        f"{config.protocol} on {dataset.name} with the encoder in {encoder_folder}/; the result "
        f"goes to {path}{', in the place of the one there' if path.exists() else ''}",
        flush=True,
    )
    weights_before = encoder.weights
    with run_folder.new(output):
        results = _results(dataset, encoder, config)
    frozen.check_unchanged(weights_before, encoder.weights)
    results = [result | other for result in results]
    run_folder.write_json(path, result_text.with_class_names(results, dataset.class_names))
    lines = [result_text.format_results(results), *result_text.comparison_lines(results)]
    print("\n" + "\n\n".join([*lines, f"written to {path}"]))


def _take_settings(
    folder: pathlib.Path, config: EvaluateConfig
) -> tuple[EvaluateConfig, pathlib.Path, RunConfig | None]:
    """Takes over the run's or encoder's flags; also returns the encoder's folder, and the run."""
    of_run = run_folder.run_of(folder)
    run = resuming.read_run(of_run)
    if run is None:
        network = _network_settings(folder)
        config = resuming.take_over(config, network, network)
        return defaults.resolve(config, "supervised", network), folder, None
    config = resuming.take_over(config, settings.flat(run), _RUN_FLAGS, of_run)
    # Views have the run's size on any data set, even where that is a default.
    config = defaults.resolve(config, "supervised", {"view_size"})
    if run.clients.shift != "none":
        print("note: the run has --shift, and this evaluation is on images without it")
    if _is_named_alike(config.data, run.data):
        _refuse_transfer(config, run)
    encoder_folder = run_folder.encoder_of(folder)
    is_own = named_code.of_flags({"encoder": config.model.encoder})
    if is_own and "encoder" not in config.given:  # Its file has the graph; no code is imported.
        network = _network_settings(encoder_folder)
        config = settings.replace(config, encoder=network.get("encoder", config.model.encoder))
    return config, encoder_folder, run


def _is_named_alike(one: DataConfig, other: DataConfig) -> bool:
    """Whether two configurations name the same data set, and of your own images the same folder."""
    if one.dataset != other.dataset or not catalog.is_own(one.dataset):
        return one.dataset == other.dataset
    return _folder(one) == _folder(other)


def _folder(config: DataConfig) -> pathlib.Path:
    return pathlib.Path(config.data_dir or "").resolve()


def _describe_other(
    dataset: ImageDataset, config: DataConfig, run: RunConfig, folder: pathlib.Path
) -> dict[str, str]:
    """Further fields of results on other images than the run in a folder was trained on.

    There are none for the run's own images. Yours may have moved since the training: those in
    another folder are the run's if they have the same hashes.
    """
    if _is_named_alike(config, run.data):
        return {}
    fields = {"pretrained_on": run.data.dataset}
    if not catalog.is_own(config.dataset):
        return fields
    digests = run_folder.read_config(folder).get("data_digests", {})
    if config.dataset == run.data.dataset and partition_record.has_digests(dataset, digests):
        return {}
    return fields | {"data_dir": str(_folder(config))}


def _refuse_transfer(config: EvaluateConfig, run: RunConfig) -> None:
    """Raises a ConfigurationError if a transfer would be to the images of the training."""
    if config.protocol == "transfer":
        own = " or another --data_dir" if catalog.is_own(run.data.dataset) else ""
        raise ConfigurationError(
            f"--protocol=transfer needs another --dataset than the run's, {run.data.dataset}{own}"
        )


def _file_name(config: EvaluateConfig, other: dict[str, str]) -> str:
    """Name of the result file; of another data set with its name, and with your images' folder."""
    parts = [config.protocol, config.data.dataset.replace("/", "_")] if other else [config.protocol]
    if "data_dir" in other:
        name = pathlib.Path(other["data_dir"]).name[:_LONGEST_NAME]
        parts.append("".join(c if c.isprintable() else "_" for c in name))
    return f"result_{'_'.join(parts)}.json"


def _network_settings(folder: pathlib.Path) -> dict[str, Any]:
    """The flags of the encoder in a folder; none if it has no `weights.npz`."""
    if not (folder / encoder_weights.FILE_NAME).exists():
        return {}
    model, _, image_shape, view_size = encoder_weights.read(folder)
    towers, tower = (model.pair, model.tower) if isinstance(model, TwoTowers) else ("one", model)
    name = tower.encoder
    if not isinstance(name, str):
        name = encoders.register(name, f"stored:{tower.encoder_name}")
    found: dict[str, Any] = {"encoder": name, "norm": tower.norm, "towers": towers}
    if view_size or image_shape[0] == image_shape[1]:
        found["view_size"] = view_size or image_shape[0]
    return found


def _results(
    dataset: ImageDataset, encoder: saved_model.LoadedEncoder, config: EvaluateConfig
) -> list[dict[str, Any]]:
    """The results of the protocol, one for each number of labels."""
    protocol, seed = config.protocol, config.seed
    baselines = probing.baselines(config.evaluation)
    model = model_options.build_model(dataset, config.model, "cco", seed=seed)
    untrained_weights = model.init(seed)
    network, _ = model.without_heads(untrained_weights)
    if isinstance(network, DualEncoder) and network.brings_weights:
        if protocol == "scratch":
            raise ConfigurationError(
                f"--protocol=scratch: encoder {network.encoder_name} brings its own weights"
            )
        baselines = probing.without_random_encoder(baselines)
        config = settings.replace(config, baselines=baselines)
    _check_architecture(network, encoder, config)
    if protocol in _TRAINING:
        return _finetune(dataset, network, encoder.weights, config)
    encode = saved_model.encoder_function(model, config.model.view_size)
    untrained = functools.partial(encode, untrained_weights)
    kinds = probing.feature_kinds(encoder, untrained, baselines)
    if protocol == "knn":
        return probing.knn_results(dataset, kinds, config.evaluation)
    results = probing.linear_probes(dataset, kinds, config.evaluation, seed)
    if not results:
        raise ConfigurationError(f"--dataset={dataset.name} has no labels or no test images")
    return [one | {"protocol": one["protocol"].replace("linear", protocol)} for one in results]


def _check_architecture(
    network: Model, encoder: saved_model.LoadedEncoder, config: EvaluateConfig
) -> None:
    """Checks that the configured network has the encoder's weights, if the protocol builds it."""
    # Norms differ only in the weights that are not trained.
    needed = [[s.shape for s in specs] for specs in
              (network.trainable_specs, network.non_trainable_specs)]  # fmt: skip
    if needed == [[w.shape for w in weights] for weights in encoder.weights]:
        return
    mismatch = (
        f"--encoder={config.model.encoder} with --norm={config.model.norm} is not the one in "
        f"--run={config.run}"
    )
    if config.protocol in _TRAINING:
        raise ConfigurationError(mismatch)
    if "random_encoder" in config.evaluation.baselines:
        raise ConfigurationError(
            f"{mismatch}, untrained: name that, or leave it out by --baselines=raw_pixels"
        )


def _finetune(
    dataset: ImageDataset, network: Model, weights: Weights, config: EvaluateConfig
) -> list[dict[str, Any]]:
    """The results of a protocol that trains the encoder: `network` with `weights`."""
    if not isinstance(network, DualEncoder):
        raise ConfigurationError(f"--protocol={config.protocol} needs a run with --towers=one")
    depth, evaluation = config.finetuning.depth, config.evaluation
    if depth:
        with naming(f"--depth={depth}"):
            network, weights = stacking.stacked(network, weights, depth)
    if config.protocol == "semi_supervised":
        labels = probing.labelled(dataset, evaluation).train.labels
        fractions = config.finetuning.label_fractions
        counts = finetuning.counts_of_fractions(fractions, labels[labels >= 0])
    else:
        counts = probing.label_counts(evaluation)
    return finetuning.finetune_results(dataset, network, weights, counts, config)
