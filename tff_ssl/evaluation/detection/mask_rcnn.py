"""Mask R-CNN (He et al. 2017) of the TensorFlow Model Garden on a ResNet of this package.

Feature pyramid, region proposals, heads, losses, anchors and the preparation of images are the
Model Garden's (tf-models-official); the backbone is `ResNetBackbone`. As in Detectron, whose
pipeline Dec-SSL uses (section 3.1, appendix C.1), the box head has two fully connected layers.
"""

import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from official.vision.configs import common
from official.vision.configs import decoders as decoder_configs
from official.vision.configs import maskrcnn as configs
from official.vision.dataloaders import maskrcnn_input
from official.vision.modeling import factory
from official.vision.tasks import maskrcnn as tasks

from tff_ssl.evaluation.detection import samplers
from tff_ssl.evaluation.detection.backbone import ResNetBackbone
from tff_ssl.evaluation.detection.hyperparameters import DetectionHyperparameters
from tff_ssl.models.dual_encoder import DualEncoder, Weights

_LOSSES = ("rpn_score_loss", "rpn_box_loss", "frcnn_cls_loss", "frcnn_box_loss", "mask_loss")
_MIN_LEVEL, _MAX_LEVEL = 2, 6
_MAX_DETECTIONS = 100  # Of an image, as in COCO's evaluation.
_RPN_FRACTION, _BOX_FRACTION = 0.5, 0.25  # Largest fractions of positives (Detectron).
_ALL_ANCHORS = 2**30

Labels = dict[str, Any]


class MaskRCNN:
    """Mask R-CNN as a function of its weights.

    Attributes:
      parameter_count: Number of trainable parameters.
    """

    def __init__(
        self, encoder: DualEncoder, classes: int, values: DetectionHyperparameters, seed: int
    ):
        """Builds the network on a ResNet without heads; `classes` does not count the background.

        The global seeds of Python, NumPy and TensorFlow are set to `seed`, because Keras's
        initializers of the weights outside of the backbone draw from them.
        """
        self._values = values
        model = _model_config(classes, values)
        self._task = tasks.MaskRCNNTask(configs.MaskRCNNTask(model=model))
        self._backbone = ResNetBackbone(encoder, values.image_size, _MIN_LEVEL)
        tf.keras.utils.set_random_seed(seed)
        images = tf.keras.layers.InputSpec(shape=[None, *model.input_size])
        self._network = factory.build_maskrcnn(images, model, backbone=self._backbone)
        self._sampler = samplers.ProposalSampler(values.sampled_boxes, _BOX_FRACTION)
        # The Model Garden's factory has no argument for the sampler.
        self._network.roi_sampler[0]._sampler = self._sampler
        self._network(
            tf.keras.Input(model.input_size), image_shape=tf.keras.Input([2]), training=False
        )
        parser = _parser(model)
        self._parse_training, self._parse_image = (
            tf.function(parser.parse_fn(is_training), [_decoded_signature()], autograph=False)
            for is_training in (True, False)
        )
        self._detect = tf.function(self._detections, autograph=False)
        self._initial = Weights(
            tuple(v.numpy() for v in self.trainable_variables),
            tuple(v.numpy() for v in self.non_trainable_variables),
        )
        self.parameter_count = sum(v.shape.num_elements() for v in self.trainable_variables)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        return self._network.trainable_variables

    @property
    def non_trainable_variables(self) -> list[tf.Variable]:
        return self._network.non_trainable_variables

    def initial_weights(self, backbone: Weights) -> Weights:
        """The initial weights with those of an encoder in the backbone."""
        variables = (*self._backbone.trainable_variables, *self._backbone.non_trainable_variables)
        values = (*backbone.trainable, *backbone.non_trainable)
        starts = {v.ref(): value for v, value in zip(variables, values, strict=True)}

        def start_values(variables, initial):
            pairs = zip(variables, initial, strict=True)
            return tuple(tf.convert_to_tensor(starts.get(v.ref(), value)) for v, value in pairs)

        return Weights(
            start_values(self.trainable_variables, self._initial.trainable),
            start_values(self.non_trainable_variables, self._initial.non_trainable),
        )

    def assign(self, weights: Weights) -> None:
        """Sets the variables."""
        variables = (*self.trainable_variables, *self.non_trainable_variables)
        values = (*weights.trainable, *weights.non_trainable)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def losses(
        self, images: tf.Tensor, labels: Labels, seed: tf.Tensor
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The loss of a `training_batch` with the current weights, and its five parts by name.

        The seed, int32 [2], is that of the samples of anchors and proposals.
        """
        anchors_seed, proposals_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        targets = samplers.sample_anchors(
            labels["rpn_score_targets"], self._values.sampled_anchors, _RPN_FRACTION, anchors_seed
        )
        self._sampler.seed.assign(proposals_seed)
        names = ("anchor_boxes", "gt_boxes", "gt_classes", "gt_masks")
        outputs = self._network(
            images, image_shape=labels["image_info"][:, 1, :], training=True,
            **{name: labels[name] for name in names},
        )  # fmt: skip
        losses = self._task.build_losses(outputs, labels | {"rpn_score_targets": targets})
        return losses["total_loss"], {name: losses[name] for name in _LOSSES}

    def training_batch(self, examples: Sequence[Any]) -> tuple[tf.Tensor, Labels]:
        """Images and labels for `losses`, from `datasets.coco_folder.AnnotatedImage`s."""
        parsed = [self._parse_training(_decoded(example)) for example in examples]
        return tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *parsed)

    def detect(self, images: Sequence[npt.NDArray[np.uint8]]) -> list[dict[str, np.ndarray]]:
        """The detections in images, uint8 [height, width, 3], with the current weights.

        Another number of images than in the last call has the graph traced again.

        Returns:
          For each image `boxes`, float32 [100, 4]: top, left, bottom and right in pixels of the
          image; `labels`, int [100]; `scores`, float32 [100], descending; `masks`, float32 [100,
          28, 28], probabilities within the box; `count`, the number of detections, after which the
          rows have no meaning.
        """
        parsed = []
        for image in images:
            pixels, labels = self._parse_image(_decoded(_without_instances(image)))
            parsed.append((pixels, labels["image_info"], labels["anchor_boxes"]))
        batch = tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *parsed)
        outputs = {name: value.numpy() for name, value in self._detect(*batch).items()}
        return [{n: values[i] for n, values in outputs.items()} for i in range(len(images))]

    def _detections(
        self, images: tf.Tensor, image_info: tf.Tensor, anchor_boxes: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """The results of `detect` for a batch of parsed images."""
        outputs = self._network(
            images, image_shape=image_info[:, 1, :], anchor_boxes=anchor_boxes, training=False
        )
        scale = tf.tile(image_info[:, 2:3, :], [1, 1, 2])
        return {
            "boxes": outputs["detection_boxes"] / scale,
            "labels": outputs["detection_classes"],
            "scores": outputs["detection_scores"],
            "masks": outputs["detection_masks"],
            "count": outputs["num_detections"],
        }


def _model_config(classes: int, values: DetectionHyperparameters) -> configs.MaskRCNN:
    half = values.proposals // 2
    proposals = configs.ROIGenerator(
        pre_nms_top_k=values.proposals, num_proposals=values.proposals,
        test_pre_nms_top_k=half, test_num_proposals=half, use_batched_nms=True,
    )  # fmt: skip
    return configs.MaskRCNN(
        num_classes=classes + 1,
        input_size=[values.image_size, values.image_size, 3],
        min_level=_MIN_LEVEL,
        max_level=_MAX_LEVEL,
        anchor=configs.Anchor(anchor_size=values.anchor_size),
        decoder=decoder_configs.Decoder(
            type="fpn", fpn=decoder_configs.FPN(num_filters=values.filters)
        ),
        rpn_head=configs.RPNHead(num_filters=values.filters),
        detection_head=configs.DetectionHead(num_convs=0, num_fcs=2, fc_dims=values.box_head_width),
        roi_generator=proposals,
        roi_sampler=configs.ROISampler(
            num_sampled_rois=values.sampled_boxes, foreground_fraction=_BOX_FRACTION
        ),
        detection_generator=configs.DetectionGenerator(
            nms_version="batched", max_num_detections=_MAX_DETECTIONS
        ),
        mask_head=configs.MaskHead(num_filters=values.filters),
        mask_sampler=configs.MaskSampler(num_sampled_masks=values.sampled_masks),
        norm_activation=common.NormActivation(
            norm_momentum=values.norm_momentum, norm_epsilon=1e-4, use_sync_bn=False
        ),
    )


def _parser(model: configs.MaskRCNN) -> maskrcnn_input.Parser:
    """The Model Garden's parser, which labels all anchors and draws nothing at random."""
    return maskrcnn_input.Parser(
        output_size=model.input_size[:2], min_level=model.min_level, max_level=model.max_level,
        num_scales=model.anchor.num_scales, aspect_ratios=model.anchor.aspect_ratios,
        anchor_size=model.anchor.anchor_size, rpn_batch_size_per_im=_ALL_ANCHORS,
        rpn_fg_fraction=_RPN_FRACTION, include_mask=True,
    )  # fmt: skip


def _decoded_signature() -> dict[str, tf.TensorSpec]:
    """The tensors that the parser takes."""
    return {
        "image": tf.TensorSpec([None, None, 3], tf.uint8),
        "source_id": tf.TensorSpec([], tf.string),
        "height": tf.TensorSpec([], tf.int32),
        "width": tf.TensorSpec([], tf.int32),
        "groundtruth_classes": tf.TensorSpec([None], tf.int64),
        "groundtruth_is_crowd": tf.TensorSpec([None], tf.bool),
        "groundtruth_area": tf.TensorSpec([None], tf.float32),
        "groundtruth_boxes": tf.TensorSpec([None, 4], tf.float32),
        "groundtruth_instance_masks": tf.TensorSpec([None, None, None], tf.float32),
    }


def _decoded(example: Any) -> dict[str, tf.Tensor]:
    """An annotated image as `_decoded_signature` has it."""
    height, width, _ = example.image.shape
    return {
        "image": tf.constant(example.image),
        "source_id": tf.constant(str(example.image_id)),
        "height": tf.constant(height),
        "width": tf.constant(width),
        "groundtruth_classes": tf.constant(example.labels),
        "groundtruth_is_crowd": tf.constant(example.crowds),
        "groundtruth_area": tf.reduce_sum(tf.cast(example.masks, tf.float32), [1, 2]),
        "groundtruth_boxes": tf.constant(example.boxes),
        "groundtruth_instance_masks": tf.constant(example.masks, tf.float32),
    }


def _without_instances(image: npt.NDArray[np.uint8]) -> Any:
    """An annotated image without instances; the parser wants them even if it uses none."""
    return types.SimpleNamespace(
        image=image,
        image_id=0,
        labels=np.zeros(0, np.int64),
        crowds=np.zeros(0, bool),
        boxes=np.zeros((0, 4), np.float32),
        masks=np.zeros((0, 1, 1), bool),
    )
