"""Builds the model and its views."""

import pathlib
from typing import Any

from datasets.image_dataset import ImageDataset
from launch.options import encoders
from launch.options.image_config import ModelConfig
from tff_ssl.errors import ConfigurationError, naming
from tff_ssl.models import pure_graphs, vit
from tff_ssl.models.dual_encoder import DualEncoder, EncoderNetwork
from tff_ssl.models.two_towers import Model, TwoTowers
from tff_ssl.objectives.registry import OBJECTIVES
from tff_ssl.views import augmentation
from tff_ssl.views.augmentation import TwoViews
from tff_ssl.views.policies import POLICIES

# Names in Linux's lists of the features of x86 and ARM CPUs.
_BFLOAT16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "bf16"}

# Flags whose settings the model checks.
_WORDS = ("encoder", "projector", "predictor", "xla", "precision")


def view_policy(model: ModelConfig) -> str:
    """The name of the augmentation policy."""
    if model.views not in POLICIES:
        raise ConfigurationError(
            f"--views must be one of {', '.join(POLICIES)}; got {model.views!r}"
        )
    return model.views


def two_views(model: ModelConfig, seed: int, xla: bool = False) -> TwoViews:
    """Builds (images, example ids, round number) -> two views, by the model's view policy.

    `xla`: whether XLA compiles them, for training.
    """
    policy, size = view_policy(model), model.view_size

    def make(images, example_ids, round_number):
        return augmentation.two_views(
            policy, images, example_ids, seed=seed, round_number=round_number, output_size=size,
            xla=xla,
        )  # fmt: skip

    return make


def build_model(
    dataset: ImageDataset,
    config: ModelConfig,
    objective: str,
    encoder: str | None = None,
    predictor: bool = False,
    xla: bool = False,
    seed: int = 0,
) -> Model:
    """Builds the model of a configuration, with the heads that the objective needs.

    Args:
      encoder: Name of the encoder; None for that of the configuration.
      predictor: Whether the algorithm needs a predictor that its objective does not.
      xla: Whether XLA compiles its training.
      seed: Seed of the run, from which a model of Keras Applications draws its weights.
    """
    height, width, channels = dataset.train.images.shape[1:]
    size = config.view_size
    shape = (size, size, channels) if size else (height, width, channels)
    projector, widths = config.projector, config.predictor
    needs = OBJECTIVES[objective]
    needs_predictor = needs.predictor or predictor
    if needs_predictor and not widths and projector:
        widths = (projector[0], projector[-1])
    has_projector = not (needs.supervised or needs.decoder)
    network = encoders.find(encoder or config.encoder, config.norm, seed)
    if not isinstance(network, str):
        _check_own(network, shape)
    if needs.decoder and (not isinstance(network, str) or network not in vit.VITS):
        raise ConfigurationError(
            f"--objective={objective} needs a vision transformer, and "
            f"--encoder={encoder or config.encoder} is none: choose one of {', '.join(vit.VITS)}, "
            "or another objective, such as nt_xent"
        )
    try:
        model = DualEncoder(
            network,
            shape,
            projector if has_projector else (),
            widths if needs_predictor else (),
            norm=config.norm,
            classes=len(dataset.class_names) if needs.supervised else 0,
            decoder=needs.decoder,
            projector_output_batch_norm=config.projector_output_batch_norm and has_projector,
            precision=config.precision,
            xla=xla,
        )
    except ValueError as error:
        # The flags of what the message speaks of.
        named = [f"--{word}" for word in _WORDS if word in str(error).lower()]
        named += ["--view_size"] * (f"{size}x{size}" in str(error))
        raise ConfigurationError(f"{', '.join(named)}: {error}" if named else str(error)) from error
    with naming(f"--towers={config.towers}"):
        return model if config.towers == "one" else TwoTowers(model, config.towers)


def _check_own(network: EncoderNetwork, image_shape: tuple[int, int, int]) -> None:
    """Checks before the training that an encoder takes the images, and that files can hold it."""
    try:
        pure_graphs.check_operations(pure_graphs.of_inference(network, image_shape).graph_def)
    except ValueError as error:
        named = (
            "" if network.name.removeprefix("keras:") in str(error) else f"encoder {network.name}: "
        )
        raise ConfigurationError(f"{named}{error}") from error


def norm_warning(objective: str, model: ModelConfig) -> str:
    """A line that warns of group norm with BYOL or SimSiam; otherwise an empty text.

    Nothing in a network with group norm compares images, so that it easily reaches a constant
    projection, which these losses do not punish (DCCO, Appendix C).
    """
    has_batch_norm = model.norm == "batch" or model.projector_output_batch_norm
    if not OBJECTIVES[objective].predictor or has_batch_norm:
        return ""
    return (
        f"warning: {objective} with group norm usually collapses to nearly the same projection of "
        "all images; --norm=batch or --projector_output_batch_norm usually helps\n"
    )


def local_norm_warning(algorithm: str, values: Any, model: Model) -> str:
    """A line that warns of clients that shall keep batch norms, and a model without any.

    `values` are the algorithm's hyperparameters.
    """
    wanted = algorithm == "fedbn" and values.batch_norm == "local" and values.averaging != "none"
    specs = (*model.trainable_specs, *model.non_trainable_specs)
    if not wanted or any(spec.batch_norm for spec in specs):
        return ""
    return (
        "warning: the model has no batch norm that clients could keep, so that fedbn averages all "
        'weights as FedAvg does: add --norm=batch (with from_keras: batch_norm="local")\n'
    )


def precision_note(precision: str, cpu_flags: set[str] | None = None) -> str:
    """A line on `--precision` if another one would be faster; otherwise an empty text.

    `cpu_flags` are names of instruction sets; None for those of this machine.
    """
    known = _cpu_flags() if cpu_flags is None else cpu_flags
    native = bool(known & _BFLOAT16_INSTRUCTIONS)
    if precision == "float32" and native:
        return (
            "note: this CPU supports bfloat16: --precision=bfloat16 makes training steps about "
            "20 % faster\n"
        )
    if precision == "bfloat16" and known and not native:
        return (
            "warning: this CPU has no instructions for bfloat16, so that --precision=bfloat16 is "
            "far slower than float32\n"
        )
    return ""


def _cpu_flags() -> set[str]:
    """Names of the CPU's instruction sets, x86 or ARM; empty if Linux does not list them."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    names = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return set(next(names, "").split())
