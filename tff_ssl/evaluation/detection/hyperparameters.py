"""Settings of the fine-tuning."""

import dataclasses

from tff_ssl.bounds import Bounded, bounded

_COARSEST_STRIDE = 64  # Of the pyramid's level 6.


@dataclasses.dataclass(frozen=True)
class DetectionHyperparameters(Bounded):
    """Hyperparameters for a hundred images on a CPU.

    Those of Dec-SSL (appendix C.1: Detectron's default schedule) are in the preset
    `dec_ssl/paper/detection`.

    Attributes:
      image_size: Height and width in pixels of the square into which each image is scaled, a
        multiple of 64; the rest of the square is padding.
      batch_size: Number of images of a step.
      learning_rate: Learning rate of SGD after the warm-up; a tenth of it from two thirds of the
        steps on, and a hundredth from eight ninths on.
      momentum: Momentum of SGD.
      weight_decay: Weight decay of kernels; scales, offsets and biases have none.
      warmup_steps: Number of steps over which the rate grows linearly from a third of it.
      flip: Whether half of the training images, chosen at random, are flipped left to right.
      filters: Number of channels of the pyramid, the proposal network and the mask head.
      box_head_width: Width of the two fully connected layers of the box head.
      anchor_size: Side of the anchors of a pyramid level, as a multiple of the level's stride.
      sampled_anchors: Number of anchors of an image that train the proposal network.
      proposals: Number of proposals of an image in training; half as many in evaluation.
      sampled_boxes: Number of proposals of an image that train the box head.
      sampled_masks: Number of proposals of an image, with an object, that train the mask head.
      norm_momentum: Momentum of the moving averages of the batch norms behind the backbone.
    """

    image_size: int = bounded(256, at_least=_COARSEST_STRIDE)
    batch_size: int = bounded(4, at_least=1)
    learning_rate: float = bounded(0.02, above=0)
    momentum: float = bounded(0.9, at_least=0, below=1)
    weight_decay: float = bounded(1e-4, at_least=0)
    warmup_steps: int = bounded(50, at_least=0)
    flip: bool = True
    filters: int = bounded(128, at_least=1)
    box_head_width: int = bounded(512, at_least=1)
    anchor_size: float = bounded(4.0, above=0)
    sampled_anchors: int = bounded(256, at_least=2)
    proposals: int = bounded(400, at_least=2)
    sampled_boxes: int = bounded(64, at_least=1)
    sampled_masks: int = bounded(16, at_least=1)
    norm_momentum: float = bounded(0.9, at_least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size % _COARSEST_STRIDE:
            raise ValueError(
                f"image_size must be a multiple of {_COARSEST_STRIDE}; got {self.image_size}"
            )
        boxes = self.sampled_boxes
        if self.proposals < boxes:
            raise ValueError(
                f"proposals must be at least sampled_boxes, {boxes}; got {self.proposals}"
            )
        if self.sampled_masks > boxes:
            raise ValueError(
                f"sampled_masks must be at most sampled_boxes, {boxes}; got {self.sampled_masks}"
            )
