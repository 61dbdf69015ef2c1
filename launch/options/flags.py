"""Flags that several scripts share. Values are read in `launch` only."""

from absl import flags

from datasets import catalog, feature_clusters, partition, shift
from tff_ssl.decentralized import topology


def define_common_flags() -> None:
    """Where results go, and the seed."""
    flags.DEFINE_string(
        "output_dir", None, "Folder for the results. Default: a new one in results/."
    )
    flags.DEFINE_integer("seed", 0, "Seed of all randomness.", lower_bound=0, upper_bound=2**31 - 1)


def define_image_flags() -> None:
    """Images alone."""
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
        "image_size", None, "Resize all images to this height and width.", lower_bound=8
    )


def define_data_flags() -> None:
    """Images and clients."""
    define_image_flags()
    flags.DEFINE_enum(
        "partition",
        "dirichlet",
        list(partition.PARTITIONS),
        "; ".join(f"{name}: {spec.description}" for name, spec in partition.PARTITIONS.items())
        + ". A case_folder has one client per case unless this is given.",
    )
    flags.DEFINE_float(
        "alpha",
        0.0,
        "dirichlet: concentration, 0 (one class each) to inf (IID). dirichlet_per_class: the same, "
        "0 putting each class on one client; Dec-SSL takes 0.01 to 5.",
        lower_bound=0.0,
    )
    flags.DEFINE_boolean(
        "balance_sizes",
        True,
        "dirichlet_per_class: keep clients near their even share of the examples, as the code of "
        "Yurochkin et al. and of Dec-SSL does.",
    )
    flags.DEFINE_float(
        "beta", None, "skew: IID fraction, 0 (exclusive classes) to 1 (IID).", 0.0, 1.0
    )
    flags.DEFINE_integer(
        "num_clients", None, "Number of clients. Default: as many as can be.", lower_bound=1
    )
    flags.DEFINE_integer(
        "samples_per_client",
        None,
        "iid, dirichlet: size of a client. Default: an even share of all examples where "
        f"--num_clients is given, else {partition.DEFAULT_SAMPLES_PER_CLIENT}.",
        lower_bound=1,
    )
    flags.DEFINE_boolean(
        "random_sizes",
        False,
        "iid, dirichlet with --num_clients: clients' sizes in proportion to uniform draws (DeNAV).",
    )
    flags.DEFINE_integer(
        "classes_per_client", None, "by_class: classes of a client.", lower_bound=1
    )
    _define_cluster_flags()
    flags.DEFINE_float(
        "data_fraction",
        1.0,
        "Share of its examples that each client keeps, chosen at random, at least one.",
    )
    flags.DEFINE_enum(
        "shift",
        "none",
        ["none", *shift.SHIFTS],
        "What each client sees differently. rotation: client k of K is turned by 2 pi k / K; "
        f"style: {', '.join(shift.STYLES)}. Only clients' training images are shifted; monitor, "
        "probes and tests see the images as they are.",
    )
    flags.DEFINE_integer(
        "shifts",
        shift.DEFAULT_SHIFTS,
        "rotation, style: number of different shifts; with more clients than that, client k has "
        "shift k modulo this.",
        lower_bound=1,
    )


def _define_cluster_flags() -> None:
    """Of the partition `feature_clusters`."""
    flags.DEFINE_string(
        "cluster_encoder",
        None,
        "feature_clusters: whose features are clustered: the folder of a run or of its encoder/, "
        "or `pixels` for the images themselves.",
    )
    flags.DEFINE_integer(
        "clusters", feature_clusters.DEFAULT_CLUSTERS, "feature_clusters: number.", lower_bound=1
    )
    flags.DEFINE_enum(
        "cluster_partition",
        partition.CLUSTER_PARTITIONS[0],
        partition.CLUSTER_PARTITIONS,
        "feature_clusters: the partition that deals the clusters out as if they were classes.",
    )


def define_model_flags() -> None:
    """The model and its views."""
    flags.DEFINE_string(
        "encoder",
        "small",
        "ResNets: tiny, small, resnet14, resnet14_bottleneck, resnet18, resnet34, resnet50; vision "
        "transformers: vit_micro, vit_tiny, vit_small_cpu, vit_one_block, vit_one_block_small, "
        "vit_one_block_micro.",
    )
    flags.DEFINE_list("projector", ["256", "256", "256"], "Widths of the projector's layers.")
    flags.DEFINE_list(
        "predictor",
        [],
        "Widths of the predictor's layers (byol, simsiam). Default: two layers as wide as the "
        "projector's first and last.",
    )
    flags.DEFINE_enum(
        "towers",
        "one",
        ["one", "views", "halves", "colour_planes"],
        "One network for both views, or two networks: one for each view, for the left and right "
        "half of the image, or for its red and its blue plane.",
    )
    flags.DEFINE_enum(
        "norm",
        "group",
        ["group", "batch"],
        "Group norm (and weight standardization) or batch norm; ViTs have layer norm.",
    )
    flags.DEFINE_string(
        "views",
        None,
        "Augmentation: byol, byol_no_blur, simclr, simclr_small, skin, affine, flip, "
        "crop_flip or none. Default: affine for digits, skin for case_folder, byol_no_blur for the "
        "others; supervised: flip, mae: crop_flip, but both affine for digits.",
    )
    flags.DEFINE_integer(
        "view_size",
        None,
        "Height and width of the views that the model sees. Default: the images' own; digits: 16.",
        lower_bound=8,
    )


def define_network_flags() -> None:
    """Of algorithms without a server."""
    flags.DEFINE_enum(
        "topology",
        "erdos_renyi",
        list(topology.TOPOLOGIES),
        "Algorithms without a server: who is linked to whom. "
        + "; ".join(f"{name}: {spec.description}" for name, spec in topology.TOPOLOGIES.items())
        + ".",
    )
    flags.DEFINE_float(
        "connectivity", 0.15, "erdos_renyi: probability of a link, 0 to 1 (DeNAV's omega)."
    )
    flags.DEFINE_enum(
        "unconnected",
        topology.UNCONNECTED[0],
        topology.UNCONNECTED,
        "erdos_renyi: what to do with a random network that is not connected: repair joins its "
        "components by a link each, refuse ends with an error.",
    )
    flags.DEFINE_string(
        "edge_list", None, "edge_list: the file; two client numbers a line, counted from 0."
    )
    flags.DEFINE_multi_string(
        "leave", [], "ROUND:CLIENT, a client that leaves the network before a round; repeatable."
    )
    flags.DEFINE_multi_string(
        "cut", [], "ROUND:CLIENT-CLIENT, a link that is cut before a round; repeatable."
    )


def define_training_flags(rounds: int, what: str) -> None:
    """The loop; `what` is the name of a round."""
    flags.DEFINE_integer("rounds", rounds, f"Number of {what}.", lower_bound=1)
    flags.DEFINE_multi_string(
        "hparam", [], "name=value, a hyperparameter; repeatable. --list shows the names."
    )
    flags.DEFINE_integer(
        "checkpoint_every", 50, f"{what.capitalize()} between checkpoints.", lower_bound=1
    )
    flags.DEFINE_integer(
        "eval_every",
        50,
        f"{what.capitalize()} between looks of the kNN monitor; 0: none.",
        lower_bound=0,
    )
    flags.DEFINE_boolean("resume", False, "Go on with the run in --output_dir.")
    flags.DEFINE_boolean("list", False, "Print what can be chosen, and end.")


def define_cohort_flags() -> None:
    """Who takes part in a round, and what becomes of those who do not do their part."""
    flags.DEFINE_integer("clients_per_round", 32, "Clients in a round's cohort.", lower_bound=1)
    flags.DEFINE_enum(
        "sampling",
        "uniform",
        ["uniform", "poisson"],
        "uniform: exactly --clients_per_round clients; poisson: each client by itself with equal "
        "probability, so many on average, as differential privacy asks for.",
    )
    flags.DEFINE_float(
        "dropout",
        0.0,
        "Simulated share of clients that do not finish a round, half of them before and half after "
        "their first report. So many more are invited that --clients_per_round finish on average.",
    )
    flags.DEFINE_float(
        "max_dropped",
        0.5,
        "Clients that drop out, fail, take too long or send what is not finite are left out and "
        "counted. The run ends when a round loses more than this share of its clients.",
        0.0,
        1.0,
    )
    flags.DEFINE_float(
        "round_timeout",
        None,
        "Seconds after which a computation of a round is given up, to be done again without the "
        "clients that take so long. The first one includes preparing the graphs. Default: none.",
    )


def define_aggregation_flags() -> None:
    """How the clients' contributions are averaged."""
    flags.DEFINE_enum(
        "aggregator",
        "mean",
        ["mean", "robust", "secure", "quantized", "rotated"],
        "mean: the plain weighted mean; robust: tff.learning's, which zeroes very large "
        "contributions and clips large model deltas; secure: secure sums, in which the server sees "
        "no single client's contribution (simulated, without cryptography); quantized: every "
        "tensor of 256 numbers or more with --quantization_bits a number; rotated: the same after "
        "a random rotation, which evens the numbers out. All but mean look at single clients, "
        "which are then not folded.",
    )
    flags.DEFINE_integer("quantization_bits", 8, "quantized, rotated: bits of a number.", 1, 16)
    flags.DEFINE_boolean(
        "symmetric_statistics",
        False,
        "dcco, dcco_one_stage with cco: send only half of <F G^T>, the triangle of its symmetric "
        "part.",
    )
    _define_privacy_flags()


def _define_privacy_flags() -> None:
    flags.DEFINE_float(
        "dp_epsilon",
        None,
        "Differential privacy: epsilon of all --rounds together, from which the noise follows; "
        "inf for clipping without noise, and no guarantee.",
    )
    flags.DEFINE_float(
        "dp_noise_multiplier",
        None,
        "Differential privacy with this much noise instead: its standard deviation over the clip, "
        "on the sum of the clients' model deltas. Epsilon follows.",
    )
    flags.DEFINE_float(
        "dp_statistics_noise_multiplier",
        None,
        "The same on the sum of encoding statistics. Default: as --dp_noise_multiplier.",
    )
    flags.DEFINE_float(
        "dp_clip", None, "Largest L2 norm of a client's model delta; larger ones are scaled down."
    )
    flags.DEFINE_float(
        "dp_statistics_clip", None, "Largest L2 norm of a client's encoding statistics."
    )
    flags.DEFINE_boolean(
        "dp_adaptive_clipping",
        False,
        "Clips follow the median norm, privately, from the given ones on.",
    )
    flags.DEFINE_float(
        "dp_delta", None, "delta of (epsilon, delta). Default: clients to the power of -1.1."
    )


def define_probe_flags() -> None:
    """The linear probe."""
    flags.DEFINE_list("labels_per_class", ["1", "5"], "Labels per class of the linear probes.")
    flags.DEFINE_list("labels", [], "Labels in all of the linear probes, instead of per class.")
    flags.DEFINE_integer(
        "label_draws",
        5,
        "Draws of the labels, of which mean and deviation are given.",
        lower_bound=1,
    )
    flags.DEFINE_list(
        "baselines",
        ["random_encoder", "raw_pixels"],
        "What is evaluated beside the encoder, on the same labels: random_encoder, raw_pixels.",
    )
    flags.DEFINE_boolean(
        "per_case",
        None,
        "One label and one prediction per case, from the mean of its images' encodings. Default: "
        "yes for a case_folder.",
    )
    flags.DEFINE_enum(
        "probe", "logistic", ["logistic", "lars"], "Logistic regression, or the DCCO paper's LARS."
    )
