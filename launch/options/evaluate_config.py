"""The configuration of `evaluate`."""

import dataclasses
from typing import Literal

from launch.options.image_config import DataConfig, ModelConfig
from launch.options.run_config import EvaluationConfig, ScriptConfig
from launch.options.settings import flag, section


@dataclasses.dataclass(frozen=True)
class FinetuningConfig:
    """Protocols that train the encoder.

    Attributes:
      label_fractions: semi_supervised: fractions of the training labels.
      finetune_steps: Number of steps of fine-tuning. Of several, the one counts that is best on the
        validation images (or on labels that were not drawn). Default: the DCCO paper's, 100 from
        1600 labels on, else 40.
      finetune_batch_size: Number of labels in a step of fine-tuning. Default: the paper's, 256 from
        1600 labels on, else 128.
      finetune_learning_rate: Initial learning rate of fine-tuning (Adam). Of several, the best
        counts, as with --finetune_steps. Default: the paper's, 0.005.
      depth: finetune, semi_supervised, scratch: number of blocks in a vision transformer's
        backbone, made by stacking the pretrained blocks (DeNAV). Default: as many as were
        pretrained.
    """

    label_fractions: tuple[float, ...] = flag((0.01, 0.1), 1e-9, 1.0)
    finetune_steps: tuple[int, ...] = flag((), 1)
    finetune_batch_size: int | None = flag(None, 1)
    finetune_learning_rate: tuple[float, ...] = flag((), 1e-9, 1e6)
    depth: int | None = flag(None, 1)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(ScriptConfig):
    """The configuration of an evaluation.

    Attributes:
      run_saved_model_graph: Run the graph of a SavedModel that has no weights.npz beside it. A
        SavedModel is a program of whoever wrote it, which can read and write your files.
      run: Folder of a pretraining run, or of a SavedModel encoder.
      protocol: Protocol of the evaluation.
    """

    run_saved_model_graph: bool = False
    run: str | None = None
    protocol: Literal["linear", "knn", "finetune", "semi_supervised", "scratch", "transfer"] = (
        "linear"
    )
    finetuning: FinetuningConfig = section(FinetuningConfig)
    data: DataConfig = section(DataConfig)
    model: ModelConfig = section(ModelConfig)
    evaluation: EvaluationConfig = section(EvaluationConfig)
