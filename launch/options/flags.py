"""Definitions of the flags that several scripts share; only `launch` reads their values."""

from absl import flags

from datasets import catalog, feature_clusters, folder_images, partition, shift
from launch.options import numbers
from tff_ssl.decentralized import topology

_LARGEST_WIDTH = 2**16


def define_common_flags() -> None:
    """Defines the flags of all scripts: the folder of results, the seed, the worker's privacy."""
    flags.DEFINE_string(
        "output_dir", None, "Folder for the results. Default: a new one in results/."
    )
    flags.DEFINE_integer("seed", 0, "Seed of all randomness.", lower_bound=0, upper_bound=2**31 - 1)
    flags.DEFINE_boolean(
        "require_private_worker",
        False,
        "End with an error where the system forbids TFF's worker a private network, instead of "
        "letting it listen on a port that others can reach.",
    )


def define_encoder_flags() -> None:
    """Defines the flag of scripts that read encoders."""
    flags.DEFINE_boolean(
        "run_saved_model_graph",
        False,
        "Run the graph of a SavedModel that has no weights.npz beside it. A SavedModel is a "
        "program of whoever wrote it, which can read and write your files.",
    )


def define_image_flags() -> None:
    """Defines the flags of the images."""
    flags.DEFINE_string(
        "dataset",
        "digits",
        "; ".join(f"{name}: {text}" for name, text in catalog.names().items())
        + "; or the name of any TFDS image-classification set that is prepared in --data_dir.",
    )
    flags.DEFINE_string(
        "data_dir", None, "Folder of prepared TFDS sets, or of a case_folder's images."
    )
    flags.DEFINE_integer(
        "image_size",
        None,
        "Height and width to which all images are resized. Default: their own; of a case_folder at "
        f"least {folder_images.SMALLEST} and at most {folder_images.LARGEST}.",
        lower_bound=8,
    )


def define_data_flags() -> None:
    """Defines the flags of the images and of their partition between clients."""
    define_image_flags()
    _define_partition_flags()
    _define_cluster_flags()
    flags.DEFINE_float(
        "data_fraction",
        1.0,
        "Fraction of its examples that each client keeps, chosen at random; it keeps at least one.",
        1e-9,
        1.0,
    )
    _define_shift_flags()


def _define_partition_flags() -> None:
    """Defines `--partition` and the settings of the partitions."""
    flags.DEFINE_enum(
        "partition",
        "dirichlet",
        list(partition.PARTITIONS),
        "; ".join(f"{name}: {spec.description}" for name, spec in partition.PARTITIONS.items())
        + ". Default of a case_folder: per_case with a metadata.csv, iid without labels.",
    )
    flags.DEFINE_float(
        "alpha",
        0.0,
        "dirichlet: concentration, from 0 (one class per client) to inf (IID). "
        "dirichlet_per_class: the same, but 0 puts each class on one client; Dec-SSL uses 0.01 to "
        "5.",
        lower_bound=0.0,
    )
    flags.DEFINE_boolean(
        "balance_sizes",
        True,
        "dirichlet_per_class: keep the clients' sizes near an even share of the examples, as the "
        "code of Yurochkin et al. and of Dec-SSL does.",
    )
    flags.DEFINE_float(
        "beta",
        None,
        "skew: fraction of the examples that is dealt out IID, from 0 (exclusive classes) to 1 "
        "(IID).",
        0.0,
        1.0,
    )
    flags.DEFINE_integer(
        "num_clients",
        None,
        "Number of clients. Default: as many as the partition allows.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "samples_per_client",
        None,
        "iid, dirichlet: number of examples of each client. Default: an even share of all examples "
        f"if --num_clients is given, else {partition.DEFAULT_SAMPLES_PER_CLIENT}.",
        lower_bound=1,
    )
    flags.DEFINE_boolean(
        "random_sizes",
        False,
        "iid, dirichlet with --num_clients: make the clients' sizes proportional to uniform random "
        "numbers, as DeNAV does.",
    )
    flags.DEFINE_integer(
        "min_client_size",
        1,
        "Number of examples that each client has at least, after --data_fraction. "
        "dirichlet_per_class fills smaller clients up with examples of the largest ones, and "
        "--random_sizes draws no smaller sizes; other partitions end with an error if a client is "
        "smaller.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "classes_per_client", None, "by_class: number of classes of each client.", lower_bound=1
    )


def _define_cluster_flags() -> None:
    """Defines the settings of the partition `feature_clusters`."""
    flags.DEFINE_string(
        "cluster_encoder",
        None,
        "feature_clusters: the encoder whose features are clustered, given as the folder of a run "
        "or of its encoder/; or `pixels`, to cluster the images themselves.",
    )
    flags.DEFINE_integer(
        "clusters",
        feature_clusters.DEFAULT_CLUSTERS,
        "feature_clusters: number of clusters.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "cluster_partition",
        partition.CLUSTER_PARTITIONS[0],
        partition.CLUSTER_PARTITIONS,
        "feature_clusters: the partition that deals out the clusters as if they were classes.",
    )


def _define_shift_flags() -> None:
    """Defines the flags of the input shift between clients."""
    flags.DEFINE_enum(
        "shift",
        "none",
        ["none", *shift.SHIFTS],
        "The way in which the clients' images differ. rotation: client k of K sees its images "
        "turned by 2 pi k / K; style: each client sees its images in one of the styles "
        f"{', '.join(shift.STYLES)}. The clients' training images are shifted; the monitor, the "
        "probes and the tests of the run's model see the original images. A client's own model "
        "(--personalized_clients) is evaluated on images with the client's shift.",
    )
    flags.DEFINE_integer(
        "shifts",
        shift.DEFAULT_SHIFTS,
        "rotation, style: number of different shifts. With more clients than shifts, client k has "
        "the shift k modulo this number.",
        lower_bound=1,
    )


def define_model_flags() -> None:
    """Defines the flags of the model and its views."""
    flags.DEFINE_string(
        "encoder",
        "small",
        "ResNets: tiny, small, resnet14, resnet14_bottleneck, resnet18, resnet34, resnet50; vision "
        "transformers: vit_micro, vit_tiny, vit_small_cpu, vit_one_block, vit_one_block_small, "
        "vit_one_block_micro.",
    )
    flags.DEFINE_list("projector", ["256", "256", "256"], "Widths of the projector's layers.")
    numbers.bound_list("projector", int, 1, _LARGEST_WIDTH)
    flags.DEFINE_list(
        "predictor",
        [],
        "Widths of the predictor's layers (byol, simsiam), and of fedx's. Default: two layers as "
        "wide as the projector's first and last.",
    )
    numbers.bound_list("predictor", int, 1, _LARGEST_WIDTH)
    flags.DEFINE_enum(
        "towers",
        "one",
        ["one", "views", "halves", "colour_planes"],
        "one: the same network for both views. The other values train two networks. views: one for "
        "each view; halves: one for the left and one for the right half of the image; "
        "colour_planes: one for its red and one for its blue plane.",
    )
    flags.DEFINE_enum(
        "norm",
        "group",
        ["group", "batch"],
        "Normalization of the ResNets: group norm (with weight standardization) or batch norm. "
        "Vision transformers always have layer norm.",
    )
    flags.DEFINE_boolean(
        "projector_output_batch_norm",
        False,
        "Put a batch norm without scale and offset on the projector's output, whatever --norm is. "
        "It keeps BYOL and SimSiam from collapsing to the same projection of all images.",
    )
    define_precision_flag()
    flags.DEFINE_string(
        "views",
        None,
        "Augmentation policy: byol, byol_no_blur, simclr, simclr_small, skin, affine, flip, "
        "crop_flip, none. Default: affine for digits; for other data sets flip with the objective "
        "supervised, crop_flip with mae, and else byol_no_blur.",
    )
    flags.DEFINE_integer(
        "view_size",
        None,
        "Height and width of the views that the model sees. Default: the size of the images; 16 "
        "for digits.",
        lower_bound=8,
    )


def define_precision_flag() -> None:
    """Defines the flag of the type in which training multiplies."""
    flags.DEFINE_enum(
        "precision",
        "float32",
        ["float32", "bfloat16"],
        "Type in which training computes the encoder's convolutions and matrix products. bfloat16 "
        "is faster on CPUs that have instructions for it, and far slower on others. All else, and "
        "every evaluation, is float32.",
    )


def define_network_flags() -> None:
    """Defines the flags of algorithms without a server."""
    flags.DEFINE_enum(
        "topology",
        "erdos_renyi",
        list(topology.TOPOLOGIES),
        "Network of the clients, for algorithms without a server. "
        + "; ".join(f"{name}: {spec.description}" for name, spec in topology.TOPOLOGIES.items())
        + ".",
    )
    flags.DEFINE_float(
        "connectivity",
        0.15,
        "erdos_renyi: probability of a link between two clients, 0 to 1 (DeNAV's omega).",
        0.0,
        1.0,
    )
    flags.DEFINE_enum(
        "unconnected",
        topology.UNCONNECTED[0],
        topology.UNCONNECTED,
        "erdos_renyi: treatment of a random network that is not connected. repair: its components "
        "are joined by one new link each; refuse: the script ends with an error.",
    )
    flags.DEFINE_string(
        "edge_list",
        None,
        "edge_list: text file of the links, one a line, as two client numbers counted from 0.",
    )
    flags.DEFINE_multi_string(
        "leave", [], "ROUND:CLIENT, a client that leaves the network before a round; repeatable."
    )
    flags.DEFINE_multi_string(
        "cut", [], "ROUND:CLIENT-CLIENT, a link that is cut before a round; repeatable."
    )


def define_training_flags(rounds: int, unit: str) -> None:
    """Defines the flags of the training loop.

    Args:
      rounds: Default of `--rounds`.
      unit: Plural name of the loop's iterations in help texts: "rounds" or "steps".
    """
    flags.DEFINE_integer("rounds", rounds, f"Number of {unit}.", lower_bound=1)
    flags.DEFINE_multi_string(
        "hparam",
        [],
        "name=value, a hyperparameter and its value; repeatable. --list shows the names.",
    )
    flags.DEFINE_integer(
        "checkpoint_every", 50, f"Number of {unit} between two checkpoints.", lower_bound=1
    )
    flags.DEFINE_integer(
        "eval_every",
        50,
        f"Number of {unit} between two evaluations by the kNN monitor; 0 for none.",
        lower_bound=0,
    )
    flags.DEFINE_enum(
        "encoder_round",
        "last",
        ["last", "best"],
        "Evaluation whose encoder is exported and probed: that of the last one, or of the one with "
        "the best kNN accuracy on training images (see --eval_every). Clients' own models "
        "(--personalized_clients) are those of the last round.",
    )
    flags.DEFINE_boolean("resume", False, "Continue the run in --output_dir.")
    flags.DEFINE_boolean("list", False, "Print what can be chosen, and end.")


def define_cohort_flags() -> None:
    """Defines the flags of the clients that take part in a round, and of those that fail."""
    flags.DEFINE_integer(
        "clients_per_round",
        32,
        "Number of clients in a round's cohort. Default for a case_folder: as many as have about "
        "128 images together.",
        lower_bound=1,
    )
    flags.DEFINE_enum(
        "sampling",
        "uniform",
        ["uniform", "poisson"],
        "uniform: every cohort has exactly --clients_per_round clients; poisson: each client takes "
        "part independently with the same probability, and a cohort has so many clients on "
        "average. Differential privacy needs poisson.",
    )
    flags.DEFINE_float(
        "dropout",
        0.0,
        "Simulated fraction of clients that do not finish a round: half of them drop out before "
        "and half after their first report. More clients are invited, so that on average "
        "--clients_per_round finish.",
        0.0,
        0.999,
    )
    flags.DEFINE_float(
        "max_dropped",
        0.5,
        "Largest fraction of its clients that a round may lose; the run ends when a round loses "
        "more. Clients that drop out, fail, take too long or send values that are not finite are "
        "left out and counted.",
        0.0,
        1.0,
    )
    flags.DEFINE_float(
        "round_timeout",
        None,
        "Seconds after which a computation of a round is stopped and repeated without the clients "
        "that take so long. The first computation includes the preparation of the graphs. Default: "
        "no limit.",
        1e-3,
        1e7,
    )


def define_aggregation_flags() -> None:
    """Defines the flags of the means over the clients' contributions."""
    flags.DEFINE_enum(
        "aggregator",
        "mean",
        ["mean", "robust", "secure", "quantized", "rotated"],
        "mean: the plain weighted mean; robust: tff.learning's robust aggregator, which zeroes "
        "very large contributions and clips large model deltas; secure: secure sums, in which the "
        "server sees no single client's contribution (simulated, without cryptography); quantized: "
        "tensors of 256 numbers or more are sent with --quantization_bits a number; rotated: the "
        "same after a random rotation, which evens the numbers out. With any other than mean, "
        "clients are not folded, because these aggregators need each client's contribution.",
    )
    flags.DEFINE_integer(
        "quantization_bits", 8, "quantized, rotated: number of bits of a number.", 1, 16
    )
    flags.DEFINE_boolean(
        "symmetric_statistics",
        False,
        "dcco, dcco_one_stage with cco: send only half of <F G^T>, the triangle of its symmetric "
        "part.",
    )
    _define_privacy_flags()


def _define_privacy_flags() -> None:
    """Defines the flags of differential privacy."""
    flags.DEFINE_float(
        "dp_epsilon",
        None,
        "Differential privacy: epsilon of all --rounds together. The noise is computed from it; "
        "inf clips without noise, and gives no guarantee.",
        lower_bound=0.0,
    )
    flags.DEFINE_float(
        "dp_noise_multiplier",
        None,
        "Differential privacy with a given noise instead of a given epsilon: standard deviation of "
        "the noise on the sum of the clients' model deltas, divided by --dp_clip. Epsilon is "
        "computed from it.",
        0.0,
        1e6,
    )
    flags.DEFINE_float(
        "dp_statistics_noise_multiplier",
        None,
        "Standard deviation of the noise on the sum of the clients' encoding statistics, divided "
        "by --dp_statistics_clip. Default: the value of --dp_noise_multiplier.",
        0.0,
        1e6,
    )
    flags.DEFINE_float(
        "dp_clip",
        None,
        "Largest L2 norm of a client's model delta; larger model deltas are scaled down to it.",
        0.0,
        1e9,
    )
    flags.DEFINE_float(
        "dp_statistics_clip",
        None,
        "Largest L2 norm of a client's encoding statistics; larger ones are scaled down to it.",
        0.0,
        1e9,
    )
    flags.DEFINE_boolean(
        "dp_adaptive_clipping",
        False,
        "Let the clips follow the median of the clients' norms, which is estimated privately; the "
        "given clips are the initial ones.",
    )
    flags.DEFINE_float(
        "dp_delta",
        None,
        "The delta of (epsilon, delta)-differential privacy. Default: the number of clients to the "
        "power of -1.1.",
        0.0,
        1.0,
    )


class _AlternativeList(flags.Flag):
    """A list flag in place of another one: the one that is given last counts, as of one flag."""

    def __init__(self, name: str, default: list[str], help_string: str, other: str):
        self.other = other
        super().__init__(
            flags.ListParser(), flags.CsvListSerializer(","), name, default, help_string
        )

    def parse(self, argument: str | list[str]) -> None:
        super().parse(argument)
        if self.value:
            flags.FLAGS[self.other].unparse()


def define_probe_flags() -> None:
    """Defines the flags of the linear probe."""
    for name, default, help_string, other in (
        ("labels_per_class", ["1", "5"], "Numbers of labels per class of the linear probes.",
         "labels"),
        ("labels", [],
         "Total numbers of labels of the linear probes, instead of --labels_per_class.",
         "labels_per_class"),
    ):  # fmt: skip
        flags.DEFINE_flag(_AlternativeList(name, default, help_string, other))
        numbers.bound_list(name, int, 1)
    flags.DEFINE_integer(
        "label_draws",
        5,
        "Number of random draws of the labels, over which mean and standard deviation are given.",
        lower_bound=1,
    )
    flags.DEFINE_list(
        "baselines",
        ["random_encoder", "raw_pixels"],
        "Baselines that are evaluated on the same labels as the encoder: random_encoder, "
        "raw_pixels.",
    )
    flags.DEFINE_boolean(
        "per_case",
        None,
        "Use one label and one prediction per case, from the mean of its images' encodings. "
        "Default: yes for a case_folder with a metadata.csv, if no case has images of several "
        "classes.",
    )
    flags.DEFINE_enum(
        "probe",
        "logistic",
        ["logistic", "lars", "adam"],
        "logistic: logistic regression; lars: the DCCO paper's linear classifier, trained with "
        "LARS; adam: Hetero-SSFL's, trained with 100 epochs of Adam.",
    )
    flags.DEFINE_boolean(
        "also_logistic",
        False,
        "Beside another --probe, also fit logistic regression on the same labels, as results of "
        "their own.",
    )
