"""Settings of the fine-tuning."""

import dataclasses

_COARSEST_STRIDE = 64  # Of the pyramid's level 6.


@dataclasses.dataclass(frozen=True)
class DetectionHyperparameters:
    """Hyperparameters for a hundred images on a CPU.

    Those of Dec-SSL (appendix C.1: Detectron's default schedule) are in the preset
    `dec_ssl/paper/detection`.

    Attributes:
      image_size: Height and width in pixels of the square into which each image is scaled, a
        multiple of 64; the rest of the square is filled up.
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
      sampled_masks: Number of proposals with an object of an image that train the mask head.
      norm_momentum: Momentum of the moving averages of the batch norms behind the backbone.
    """

    image_size: int = 256
    batch_size: int = 4
    learning_rate: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warmup_steps: int = 50
    flip: bool = True
    filters: int = 128
    box_head_width: int = 512
    anchor_size: float = 4.0
    sampled_anchors: int = 256
    proposals: int = 400
    sampled_boxes: int = 64
    sampled_masks: int = 16
    norm_momentum: float = 0.9

    def __post_init__(self):
        if self.image_size < _COARSEST_STRIDE or self.image_size % _COARSEST_STRIDE:
            raise ValueError(
                f"image_size must be a multiple of {_COARSEST_STRIDE}; got {self.image_size}"
            )
        for name in ("batch_size", "filters", "box_head_width", "sampled_boxes", "sampled_masks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.sampled_anchors < 2:
            raise ValueError(f"sampled_anchors must be at least 2; got {self.sampled_anchors}")
        if self.proposals < max(self.sampled_boxes, 2):
            raise ValueError(
                f"proposals must be at least sampled_boxes, {self.sampled_boxes}; "
                f"got {self.proposals}"
            )
        if self.sampled_masks > self.sampled_boxes:
            raise ValueError(
                f"sampled_masks must be at most sampled_boxes, {self.sampled_boxes}; "
                f"got {self.sampled_masks}"
            )
        if self.learning_rate <= 0 or self.anchor_size <= 0:
            raise ValueError("learning_rate and anchor_size must be positive")
        if self.weight_decay < 0 or self.warmup_steps < 0:
            raise ValueError("weight_decay and warmup_steps must not be negative")
        for name in ("momentum", "norm_momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1); got {getattr(self, name)}")
