"""Sections of configurations: images, clients, and the model with its views."""

import dataclasses
from typing import Literal

from datasets import catalog, feature_clusters, folder_images
from datasets.partition import CLUSTER_PARTITIONS, DEFAULT_SAMPLES_PER_CLIENT, PARTITIONS
from datasets.shift import DEFAULT_SHIFTS, SHIFTS, STYLES
from launch.options.settings import FEDERATED, flag

_LARGEST_WIDTH = 2**16


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Images.

    Attributes:
      dataset: {names}; or any TFDS image-classification set that is prepared in --data_dir.
      data_dir: Folder of prepared TFDS sets, or the folder or file of your own images.
      image_size: Height and width to which all images are resized. Default: their own; of your own
        images {names}, or at most the size of the views with pretrained weights.
      follow_links: case_folder: also read links to folders and links that lead out of --data_dir.
        Without it they are left out and counted.
      skip_broken: case_folder, parquet, hf_disk: leave missing and broken images out.
        Without it they are an error. All images are decoded once more to find them.
      train_labels: supervised: number of labelled images to train on, drawn with --seed in
        proportion to the sizes of the classes. Default: all images that have a label.
    """

    dataset: str = flag(
        "digits", names="; ".join(f"{name}: {text}" for name, text in catalog.names().items())
    )
    data_dir: str | None = None
    image_size: int | None = flag(
        None, 8, names=f"at least {folder_images.SMALLEST} and at most {folder_images.LARGEST}"
    )
    follow_links: bool = False
    skip_broken: bool = False
    train_labels: int | None = flag(None, 1, scripts=["centralized"])


@dataclasses.dataclass(frozen=True)
class ClientsConfig:
    """Clients and their images.

    Attributes:
      partition: {names}. Default of your own images: per_case if they have clients, iid without
        labels.
      num_clients: Number of clients. Default: iid, dirichlet: as many as there are images for;
        other partitions of classes need it.
      samples_per_client: iid, dirichlet: number of examples of each client. Default: an even share
        of all examples if --num_clients is given, otherwise {names}.
      random_sizes: iid, dirichlet with --num_clients: make the clients' sizes proportional to
        uniform random numbers, as DeNAV does.
      min_client_size: Smallest number of examples of a client, after --data_fraction.
        dirichlet_per_class fills smaller clients up with examples of the largest ones, and
        --random_sizes draws no smaller sizes; with other partitions a smaller client is an error.
      skip_small_clients: Leave out clients with too few examples for the objective, instead of
        ending with an error.
      alpha: dirichlet: concentration, from 0 (one class per client) to inf (IID).
        dirichlet_per_class: the same, but 0 puts each class on one client; Dec-SSL uses 0.01 to 5.
      balance_sizes: dirichlet_per_class: keep the clients' sizes near an even share of the
        examples, as the code of Yurochkin et al. and of Dec-SSL does.
      beta: skew: fraction of the examples that is dealt out IID: 0 (exclusive classes) to 1 (IID).
      classes_per_client: by_class: number of classes of each client.
      cluster_encoder: feature_clusters: the encoder whose features are clustered, given as the
        folder of a run or of its encoder/; or `pixels`, to cluster the images themselves.
      clusters: feature_clusters: number of clusters.
      cluster_partition: feature_clusters: partition that deals out the clusters like classes.
      data_fraction: Fraction of its examples that each client keeps, at random; at least one.
      shift: How the clients' images differ. rotation: client k of K sees its images turned by
        2 pi k / K; style: each client sees its images in one of the styles {names}. Only training
        images are shifted; the monitor, the probes and the tests of the run's model see the
        original images. A client's own model (--personalized_clients) is evaluated on images with
        the client's shift.
      shifts: rotation, style: number of different shifts. With more clients than shifts, client k
        has the shift k modulo this number.
      rad_size: hetero_ssfl: number of training images that belong to the server instead of the
        clients: the representation alignment dataset (RAD), drawn at random and used without
        labels.
    """

    partition: str = flag(
        "dirichlet",
        choices=list(PARTITIONS),
        names="; ".join(f"{name}: {s.description}" for name, s in PARTITIONS.items()),
    )
    num_clients: int | None = flag(None, 1)
    samples_per_client: int | None = flag(None, 1, names=str(DEFAULT_SAMPLES_PER_CLIENT))
    random_sizes: bool = False
    min_client_size: int = flag(1, 1)
    skip_small_clients: bool = flag(False, scripts=FEDERATED)
    alpha: float = flag(0.0, 0.0)
    balance_sizes: bool = True
    beta: float | None = flag(None, 0.0, 1.0)
    classes_per_client: int | None = flag(None, 1)
    cluster_encoder: str | None = None
    clusters: int = flag(feature_clusters.DEFAULT_CLUSTERS, 1)
    cluster_partition: str = flag(CLUSTER_PARTITIONS[0], choices=CLUSTER_PARTITIONS)
    data_fraction: float = flag(1.0, 1e-9, 1.0)
    shift: str = flag("none", choices=["none", *SHIFTS], names=", ".join(STYLES))
    shifts: int = flag(DEFAULT_SHIFTS, 1)
    rad_size: int = flag(5000, 2, scripts=FEDERATED)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Model and views.

    Attributes:
      encoder: ResNets: tiny, small, resnet14, resnet14_bottleneck, resnet18, resnet34, resnet50;
        vision transformers: vit_micro, vit_tiny, vit_small_cpu, vit_one_block, vit_one_block_small,
        vit_one_block_micro; EfficientNet: efficientnet_lite0; keras:NAME, a model of Keras
        Applications, such as keras:EfficientNetV2B0; MODULE:FUNCTION, a function that returns a
        Keras model or an encoder of your own.
      init_from: Pretrained weights from which the encoder starts: the folder of a run or of its
        encoder/, a file weights.npz, efficientnet_lite0 (trained on ImageNet; the extra
        `pretrained`), or for --encoder=keras:NAME imagenet, which Keras downloads, or a file of
        Keras, also for MODULE:FUNCTION. Encoder and norm are those of the weights, unless they are
        of Keras. Default: random weights.
      freeze: With --init_from, number of the encoder's stages, from its first convolution on, whose
        weights and moving averages stay as they are. Not for models of Keras.
      encoders: hetero_ssfl: encoders of the clients, named as for --encoder, such as
        resnet18,resnet34. They are assigned to the clients at random, in equal shares. Default:
        --encoder for all clients.
      alignment_encoder: fedca: the frozen encoder, trained on public images, to which clients align
        their encodings, given as the folder of a run or of its encoder/.
      projector: Widths of the projector's layers.
      predictor: Widths of the predictor's layers (byol, simsiam), and of fedx's. Default: two
        layers as wide as the projector's first and last.
      towers: one: the same network for both views. The others train two networks. views: one for
        each view; halves: one for the left and one for the right half of the image; colour_planes:
        one for its red and one for its blue plane.
      norm: Normalization of convolutional networks: group norm (with weight standardization),
        batch norm, or frozen, for pretrained networks with batch norm, whose moving averages become
        a part of their scales and offsets. Default: group; frozen with pretrained weights that
        need it. Vision transformers always have layer norm.
      projector_output_batch_norm: Put a batch norm without scale and offset on the projector's
        output, whatever --norm is. It keeps BYOL and SimSiam from collapsing to the same projection
        of all images.
      precision: Type in which training computes the encoder's convolutions and matrix products.
        bfloat16 is faster on CPUs that have instructions for it, and far slower on others.
        Everything else, and every evaluation, is float32.
      views: Augmentation policy: byol, byol_no_blur, simclr, simclr_small, skin, affine, flip,
        crop_flip, none. Default: affine for written characters (digits, leaf, mnist, emnist,
        kmnist); for other data sets flip with the objective supervised, crop_flip with mae, and
        otherwise byol_no_blur.
      view_size: Height and width of the views that the model sees. Default: the size of the images;
        16 for digits.
    """

    encoder: str = "small"
    init_from: str | None = flag(None, scripts=(*FEDERATED, "centralized"))
    freeze: int = flag(0, 0, scripts=(*FEDERATED, "centralized"))
    encoders: tuple[str, ...] = flag((), scripts=FEDERATED)
    alignment_encoder: str | None = flag(None, scripts=FEDERATED)
    projector: tuple[int, ...] = flag((256, 256, 256), 1, _LARGEST_WIDTH)
    predictor: tuple[int, ...] = flag((), 1, _LARGEST_WIDTH)
    towers: Literal["one", "views", "halves", "colour_planes"] = "one"
    norm: Literal["group", "batch", "frozen"] = "group"
    projector_output_batch_norm: bool = False
    precision: Literal["float32", "bfloat16"] = "float32"
    views: str | None = None
    view_size: int | None = flag(None, 8)
