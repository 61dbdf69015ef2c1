"""Chooses the micro-batches of rounds that run in this process.

Their size affects memory and speed, but not the result. On a GPU it is the largest that fits.
"""

import dataclasses

from datasets.image_dataset import ImageDataset
from launch.options import model as model_options
from launch.options.algorithm import Chosen
from launch.options.hyperparameters import AUTO
from tff_ssl.errors import OutOfMemoryError
from tff_ssl.runtime.devices import Gpu
from tff_ssl.templates.micro_batches import largest_that_fits

_NAME = "micro_batch_size"


def fit(chosen: Chosen, dataset: ImageDataset, gpu: Gpu | None) -> Chosen:
    """The largest micro-batches that fit into the GPU, unless `--hparam` gives their size."""
    if gpu is None or not gpu.memory_mib or not _is_auto(chosen):
        return chosen
    config, entry = chosen.config, chosen.entry
    model = model_options.build_model(
        dataset, config.model, config.objective, predictor=entry.predictor, seed=config.seed
    )
    # A round has no more images than the data set, so that larger sizes would change nothing.
    fits = largest_that_fits(model, gpu.memory_mib << 20)
    return _with_size(chosen, min(fits, len(dataset.train)))


def halve(chosen: Chosen, error: OutOfMemoryError) -> Chosen:
    """Half as large micro-batches, after a round that did not fit into memory; prints a note.

    Raises:
      OutOfMemoryError: If other settings decide about the memory.
    """
    size = getattr(chosen.values, _NAME, 1)
    if not _is_auto(chosen) or size == 1:
        is_given = any(text.startswith(_NAME) for text in chosen.config.algorithm.hparam)
        what = _NAME if is_given and size > 1 else "batch_size"
        raise OutOfMemoryError(
            f"a round does not fit into memory ({error}): lower --hparam={what}=N or "
            "--max_concurrent_calls, choose a smaller --encoder, or continue on the CPU with "
            "CUDA_VISIBLE_DEVICES=-1 before the command and --resume"
        ) from error
    half = size // 2
    print(f"note: a round does not fit into memory, and runs again with micro_batch_size={half}")
    return _with_size(chosen, half)


def _is_auto(chosen: Chosen) -> bool:
    """Whether rounds of the algorithm have micro-batches, whose size is not given."""
    # FedAvg has them in rounds of one step only; with local steps, the batch decides.
    has_them = getattr(chosen.values, "is_one_gradient_step", hasattr(chosen.values, _NAME))
    given = [text.replace(" ", "") for text in chosen.config.algorithm.hparam]
    last = [text for text in given if text.startswith(f"{_NAME}=")][-1:]
    return has_them and last in ([], [AUTO])


def _with_size(chosen: Chosen, size: int) -> Chosen:
    return chosen._replace(values=dataclasses.replace(chosen.values, micro_batch_size=size))
