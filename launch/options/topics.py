"""The topics by which `--help` groups flags."""

# Topic -> names of its flags in the order of the help text. Flags that are in no topic belong to
# one script, and come first.
TOPICS = {
    "What is trained": ("algorithm", "objective", "hparam"),
    "Images": ("dataset", "data_dir", "image_size", "train_labels"),
    "Clients and their images": (
        "partition", "num_clients", "samples_per_client", "random_sizes", "min_client_size",
        "skip_small_clients", "alpha", "balance_sizes", "beta", "classes_per_client",
        "cluster_encoder", "clusters", "cluster_partition", "data_fraction", "shift", "shifts",
        "rad_size",
    ),
    "Model and views": (
        "encoder", "encoders", "alignment_encoder", "projector", "predictor", "towers", "norm",
        "projector_output_batch_norm", "precision", "views", "view_size",
    ),
    "Rounds": (
        "rounds", "clients_per_round", "batches", "batch_size", "sampling", "dropout",
        "max_dropped", "round_timeout",
    ),
    "Network without a server": (
        "topology", "connectivity", "unconnected", "edge_list", "leave", "cut",
    ),
    "Aggregation": ("aggregator", "quantization_bits", "symmetric_statistics"),
    "Differential privacy": (
        "dp_epsilon", "dp_noise_multiplier", "dp_statistics_noise_multiplier", "dp_clip",
        "dp_statistics_clip", "dp_adaptive_clipping", "dp_delta",
    ),
    "Evaluation": (
        "eval_every", "encoder_round", "labels_per_class", "labels", "label_draws", "baselines",
        "per_case", "probe", "also_logistic", "personalized_clients",
    ),
    "Speed and machines": (
        "fold", "max_concurrent_calls", "ray", "slices", "require_private_worker",
    ),
    "Results": ("output_dir", "seed", "checkpoint_every", "resume", "list"),
}  # fmt: skip
