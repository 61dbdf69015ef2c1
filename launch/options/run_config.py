"""The configuration of a run, `RunConfig`, whose fields are the flags of `pretrain`.

`lower` has the same flags, and `centralized` has those that need no clients. The first line of a
section's docstring is its topic in help texts, and below `Attributes:` is the help of each flag.
"""

import dataclasses
from typing import Literal

from launch.options.image_config import ClientsConfig, DataConfig, ModelConfig
from launch.options.settings import FEDERATED, Settings, flag, section
from tff_ssl.decentralized.topology import TOPOLOGIES, UNCONNECTED

_TRAINING = (*FEDERATED, "centralized")
_RESUMED = ("pretrain", "centralized", "detect", "stacks.flower")
_WITH_SEEDS = ("pretrain", "centralized", "evaluate", "sweep")
# What `--list=TOPIC` describes; see `launch.options.choices`.
TOPICS = (
    "algorithms", "objectives", "datasets", "partitions", "topologies", "encoders", "views",
)  # fmt: skip
_HPARAM_VALUES = (
    "NAME=A,B, the values to try of a hyperparameter; repeatable. --list shows the names."
)
_EVALUATION_SEEDS = (
    "Seeds to evaluate with instead of --seed. If --run is the folder of a training with --seeds, "
    "evaluate its runs of these seeds, each with its own seed; otherwise evaluate the run with "
    "each of these seeds, which draw other labels and untrained encoders. Each has a folder seed_N "
    "in --output_dir, by default in --run, with summary.csv and compare.html of all beside them."
)
_CLIENTS_OF_BATCH = "Number of clients whose examples form a batch, for --batches=cohorts."


@dataclasses.dataclass(frozen=True)
class AlgorithmConfig:
    """What is trained.

    Attributes:
      algorithm: Name of the algorithm; --list shows all, and --list --algorithm=NAME the
        hyperparameters of one. package.module:ENTRY is an algorithm of your own: the registry entry
        of that name, in a module on PYTHONPATH.
      objective: Name of the clients' loss; --list shows all. Default: the algorithm's own.
      hparam: name=value, a hyperparameter and its value; repeatable. --list shows the names.
    """

    algorithm: str = flag("dcco", scripts=("pretrain", "lower", "stacks.flower"))
    objective: str | None = flag(
        None, in_script={"centralized": ("cco", "Name of the loss; --list shows all.")}
    )
    hparam: tuple[str, ...] = flag((), repeated=True, in_script={"sweep": ((), _HPARAM_VALUES)})


@dataclasses.dataclass(frozen=True)
class ParticipationConfig:
    """Rounds.

    Attributes:
      rounds: Number of {unit}.
      clients_per_round: Number of clients in a round's cohort. Default for your own images: as many
        as have about 128 images together.
      batches: shuffled: steps go through shuffled epochs; cohorts: a step has the examples of the
        --clients_per_round clients of a federated round.
      batch_size: Number of examples of a step, for --batches=shuffled.
      sampling: uniform: every cohort has exactly --clients_per_round clients; poisson: each client
        takes part independently with the same probability, and a cohort has that many clients on
        average. Differential privacy needs poisson.
      dropout: Simulated fraction of clients that do not finish a round: half of them drop out
        before and half after their first report. More clients are invited, so that on average
        --clients_per_round finish.
      max_dropped: Largest fraction of its clients that a round may lose before the run ends.
        Clients that drop out, fail, take too long or send values that are not finite are left out
        and counted.
      round_timeout: Seconds after which a computation of a round is stopped and repeated without
        the clients that take so long; algorithms without a server and hetero_ssfl end instead. The
        first computation includes the preparation of the graphs. Default: no limit.
    """

    rounds: int = flag(400, 1)
    clients_per_round: int = flag(32, 1, in_script={"centralized": (32, _CLIENTS_OF_BATCH)})
    batches: Literal["shuffled", "cohorts"] = flag("shuffled", scripts=["centralized"])
    batch_size: int = flag(128, 2, scripts=["centralized"])
    sampling: Literal["uniform", "poisson"] = flag("uniform", scripts=FEDERATED)
    dropout: float = flag(0.0, 0.0, 0.999, scripts=FEDERATED)
    max_dropped: float = flag(0.5, 0.0, 1.0, scripts=FEDERATED)
    round_timeout: float | None = flag(None, 1e-3, 1e7, scripts=FEDERATED)


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Network without a server.

    Attributes:
      topology: Network of the clients, for algorithms without a server. {names}.
      connectivity: erdos_renyi: probability of a link between two clients, 0 to 1 (DeNAV's omega).
      unconnected: erdos_renyi: treatment of a random network that is not connected. repair: join
        its components by one new link each; refuse: end with an error.
      edge_list: edge_list: text file of links, one a line: two client numbers, counted from 0.
      leave: ROUND:CLIENT, a client that leaves the network before a round; repeatable.
      cut: ROUND:CLIENT-CLIENT, a link that is cut before a round; repeatable.
    """

    topology: str = flag(
        "erdos_renyi",
        choices=list(TOPOLOGIES),
        names="; ".join(f"{name}: {t.description}" for name, t in TOPOLOGIES.items()),
    )
    connectivity: float = flag(0.15, 0.0, 1.0)
    unconnected: str = flag(UNCONNECTED[0], choices=UNCONNECTED)
    edge_list: str | None = None
    leave: tuple[str, ...] = flag((), repeated=True)
    cut: tuple[str, ...] = flag((), repeated=True)


@dataclasses.dataclass(frozen=True)
class AggregationConfig:
    """Aggregation.

    Attributes:
      aggregator: mean: the plain weighted mean; robust: tff.learning's robust aggregator, which
        zeroes very large contributions and clips large model deltas; secure: secure sums, in which
        the server sees no single client's contribution (simulated, without cryptography);
        quantized: tensors of 256 numbers or more are sent with --quantization_bits a number;
        rotated: the same after a random rotation, which evens the numbers out. Clients are folded
        with mean only: the others need each client's contribution.
      quantization_bits: quantized, rotated: number of bits of a number.
      symmetric_statistics: dcco, dcco_one_stage with cco: send only half of <F G^T>, the triangle
        of its symmetric part.
    """

    aggregator: Literal["mean", "robust", "secure", "quantized", "rotated"] = "mean"
    quantization_bits: int = flag(8, 1, 16)
    symmetric_statistics: bool = False


@dataclasses.dataclass(frozen=True)
class PrivacyConfig:
    """Differential privacy.

    Attributes:
      dp_epsilon: Epsilon of all --rounds together, from which the noise is computed; inf clips
        without noise, and gives no guarantee.
      dp_noise_multiplier: Differential privacy with a given noise instead of a given epsilon:
        standard deviation of the noise on the sum of the clients' model deltas, divided by
        --dp_clip. Epsilon is computed from it.
      dp_statistics_noise_multiplier: Standard deviation of the noise on the sum of the clients'
        encoding statistics, divided by --dp_statistics_clip. Default: the value of
        --dp_noise_multiplier.
      dp_clip: L2 norm to which larger model deltas of clients are scaled down.
      dp_statistics_clip: L2 norm to which larger encoding statistics of clients are scaled down.
      dp_adaptive_clipping: Let the clips follow the median of the clients' norms, which is
        estimated privately; the given clips are the initial ones.
      dp_delta: The delta of (epsilon, delta)-differential privacy. Default: the number of clients
        to the power of -1.1.
    """

    dp_epsilon: float | None = flag(None, 0.0)
    dp_noise_multiplier: float | None = flag(None, 0.0, 1e6)
    dp_statistics_noise_multiplier: float | None = flag(None, 0.0, 1e6)
    dp_clip: float | None = flag(None, 0.0, 1e9)
    dp_statistics_clip: float | None = flag(None, 0.0, 1e9)
    dp_adaptive_clipping: bool = False
    dp_delta: float | None = flag(None, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation.

    Attributes:
      eval_every: Number of {unit} between two evaluations by the kNN monitor; 0 for none.
      encoder_round: Round whose encoder is exported and probed: the last, or the evaluation with
        the best kNN accuracy on training images (see --eval_every). Clients' own models
        (--personalized_clients) are those of the last round.
      labels_per_class: Numbers of labels per class of the linear probes.
      labels: Total numbers of labels of the linear probes, instead of --labels_per_class.
      label_draws: Number of random draws of the labels, for mean and standard deviation.
      baselines: Baselines to evaluate on the encoder's labels: random_encoder, raw_pixels;
        imagenet_encoder: EfficientNet-Lite0 with weights of ImageNet, for photographs (needs the
        extra `pretrained`).
      per_case: Use one label and one prediction per case, from the mean of its images' encodings.
        Default: yes for your own images with cases, if no case has images of several
        classes.
      probe: logistic: logistic regression; lars: the DCCO paper's linear classifier, trained with
        LARS; adam: Hetero-SSFL's, trained with 100 epochs of Adam.
      also_logistic: With another --probe, also fit logistic regression on the same labels, as
        separate results.
      personalized_clients: Number of clients whose own models are also evaluated, for algorithms
        whose clients have their own: the first that have trained or, without a server, the first.
    """

    eval_every: int = flag(50, 0, scripts=_TRAINING)
    encoder_round: Literal["last", "best"] = flag("last", scripts=_TRAINING)
    labels_per_class: tuple[int, ...] = flag((1, 5), 1, instead_of="labels")
    labels: tuple[int, ...] = flag((), 1, instead_of="labels_per_class")
    label_draws: int = flag(5, 1)
    baselines: tuple[str, ...] = ("random_encoder", "raw_pixels")
    per_case: bool | None = None
    probe: Literal["logistic", "lars", "adam"] = "logistic"
    also_logistic: bool = False
    personalized_clients: int = flag(0, 0, scripts=FEDERATED)


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
    """Speed and machines.

    Attributes:
      fold: Number of groups into which the clients of a cohort are folded, if the algorithm allows
        it. A group is computed like one client, which is much faster and gives the same result up
        to rounding. 0: clients are not folded.
      max_concurrent_calls: Number of clients or groups computed at the same time; -1 for all.
        Default: two per core (four with --runtime=worker), or one per core if clients keep a state
        between rounds.
      runtime: in_process: TensorFlow in the program's process, which uses a GPU if there is one.
        worker: TFF's worker, a process of its own that uses the CPU only. auto: worker with
        --round_timeout, which needs it, otherwise in_process. With --ray, that of the nodes.
      deterministic: On a GPU, only use algorithms that give the same result in every run, so that
        runs repeat and resume bit for bit, as they do on a CPU without this flag. Slower.
      xla: Compile the views and the training of the model with XLA, so that a GPU starts fewer
        operations; needs rounds in this process (--runtime). Compiling takes some seconds for each
        size of a batch in the first rounds. Not yet measured on a GPU. Results are the same up to
        rounding.
      ray: Compute rounds on several nodes with Ray: local:N for N nodes on this machine, or the
        address of a Ray cluster such as 10.0.0.1:6379 for a node on each of its machines. Needs the
        extra `ray`.
      slices: Largest number of slices of about equal work into which the clients or groups of a
        round are divided. With --ray a slice is computed on one node; default: 16. Without --ray,
        slices are computed one after another, so that a round holds the contributions of one slice
        in memory at a time; default: not divided. The number of slices changes the last digits of
        the weights, the number of nodes does not. With one slice per client or group, weights equal
        those of an undivided round.
      require_private_worker: End with an error if the system forbids TFF's worker a private
        network, instead of letting it listen on a port that others can reach.
    """

    fold: int = flag(1, 0, scripts=FEDERATED)
    max_concurrent_calls: int | None = flag(None, -1, scripts=FEDERATED)
    runtime: Literal["auto", "worker", "in_process"] = flag("auto", scripts=FEDERATED)
    deterministic: bool = flag(False, scripts=_TRAINING)
    xla: bool = flag(False, scripts=_TRAINING)
    ray: str | None = flag(None, scripts=FEDERATED)
    slices: int | None = flag(None, 1, scripts=FEDERATED)
    require_private_worker: bool = False


@dataclasses.dataclass(frozen=True)
class OutputConfig:
    """Results.

    Attributes:
      output_dir: Folder for the results. Default: a new one in results/.
      seed: Seed of all randomness.
      seeds: Seeds to train with instead of --seed, one run after another, each in a folder seed_N
        in --output_dir. In the end, summary.csv and compare.html there have mean and deviation.
      checkpoint_every: Number of {unit} between two checkpoints.
      resume: Continue the run in --output_dir.
      list: Print the names that can be chosen, or those of one topic with a line each, and exit.
    """

    output_dir: str | None = None
    seed: int = flag(0, 0, 2**31 - 1)
    seeds: tuple[int, ...] = flag(
        (), 0, 2**31 - 1, scripts=_WITH_SEEDS, recorded=False,
        in_script={
            "evaluate": ((), _EVALUATION_SEEDS),
            "sweep": ((), "Seeds of each trial, instead of --seed."),
        },
    )  # fmt: skip
    checkpoint_every: int = flag(50, 1, scripts=(*_RESUMED, "lower", "sweep"))
    resume: bool = flag(False, scripts=_RESUMED)
    list: bool | str = flag(
        False, scripts=(*_RESUMED, "lower", "sweep"), choices=TOPICS,
        in_script={"detect": (False, "Print hyperparameters and exit.", ())},
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ScriptConfig(Settings):
    """What the configurations of all scripts that write results have."""

    runtime: RuntimeConfig = section(RuntimeConfig)
    output: OutputConfig = section(OutputConfig)

    @property
    def seed(self) -> int:
        """Seed of all randomness."""
        return self.output.seed


@dataclasses.dataclass(frozen=True)
class RunConfig(ScriptConfig):
    """The configuration of a run of `pretrain` or `centralized`."""

    algorithm: AlgorithmConfig = section(AlgorithmConfig)
    data: DataConfig = section(DataConfig)
    clients: ClientsConfig = section(ClientsConfig)
    model: ModelConfig = section(ModelConfig)
    participation: ParticipationConfig = section(ParticipationConfig)
    network: NetworkConfig = section(NetworkConfig, *FEDERATED)
    aggregation: AggregationConfig = section(AggregationConfig, *FEDERATED)
    privacy: PrivacyConfig = section(PrivacyConfig, *FEDERATED)
    evaluation: EvaluationConfig = section(EvaluationConfig)

    @property
    def rounds(self) -> int:
        """Number of rounds, or of steps of the centralized baseline."""
        return self.participation.rounds

    @property
    def objective(self) -> str:
        """Name of the objective; `algorithm.choose` sets it if no flag does."""
        assert self.algorithm.objective
        return self.algorithm.objective
