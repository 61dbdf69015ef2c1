"""The configuration of `detect`."""

import dataclasses

from launch.options.run_config import ScriptConfig
from launch.options.settings import flag


@dataclasses.dataclass(frozen=True)
class DetectConfig(ScriptConfig):
    """The configuration of a fine-tuning for detection.

    Attributes:
      run: Folder of a pretraining run, or of its encoder/; its encoder must be a ResNet.
      supervised_run: Folder of a run of the same encoder with labels (launch.centralized
        --objective=supervised), as a further start.
      starts: Encoders from which is fine-tuned, one after the other: pretrained, that of --run;
        untrained, the same network with random weights; supervised, that of --supervised_run, which
        adds it.
      train_images: Number of training images. Default: all with instances.
      eval_images: Number of training images on which AP is measured.
      hparam: name=value, a hyperparameter and its value; repeatable. --list shows the names.
      data_dir: Folder of the images and annotations, in COCO's layout.
      rounds: Number of steps.
      eval_every: Number of steps between two measurements of AP on training images; 0 for none.
    """

    run: str | None = None
    supervised_run: str | None = None
    starts: tuple[str, ...] = ("pretrained", "untrained")
    train_images: int | None = flag(None, 1)
    eval_images: int = flag(100, 1)
    hparam: tuple[str, ...] = flag((), repeated=True)
    data_dir: str | None = None
    rounds: int = flag(400, 1)
    eval_every: int = flag(100, 0)
