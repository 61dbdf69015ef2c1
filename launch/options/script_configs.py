"""The configurations of `evaluate`, `visualize`, `embed` and `detect`."""

import dataclasses
from typing import Literal

from datasets import catalog
from launch.options.image_config import ClientsConfig, DataConfig, ModelConfig
from launch.options.run_config import EvaluationConfig, ScriptConfig
from launch.options.settings import flag, section


@dataclasses.dataclass(frozen=True)
class FinetuningConfig:
    """Protocols that train the encoder.

    Attributes:
      label_fractions: semi_supervised: fractions of the training labels.
      finetune_steps: Number of steps of fine-tuning. Of several, the best on the validation images
        (or on labels that were not drawn) counts. Default: the DCCO paper's, 100 from 1600 labels
        on, otherwise 40.
      finetune_batch_size: Number of labels in a step of fine-tuning. Default: the paper's, 256 from
        1600 labels on, otherwise 128.
      finetune_learning_rate: Initial learning rate of fine-tuning (Adam). Of several, the best
        counts, as with --finetune_steps. Default: the paper's, 0.005.
      depth: finetune, semi_supervised, scratch: number of blocks in a vision transformer's
        backbone, made by stacking the pretrained blocks (DeNAV). Default: the pretrained number.
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
    protocol: Literal[
        "linear", "held_out", "knn", "finetune", "semi_supervised", "scratch", "transfer"
    ] = "linear"
    finetuning: FinetuningConfig = section(FinetuningConfig)
    data: DataConfig = section(DataConfig)
    model: ModelConfig = section(ModelConfig)
    evaluation: EvaluationConfig = section(EvaluationConfig)


@dataclasses.dataclass(frozen=True)
class VisualizeConfig(ScriptConfig):
    """What is drawn or compared.

    Attributes:
      run_saved_model_graph: Run the graph of a SavedModel that has no weights.npz beside it. A
        SavedModel is a program of whoever wrote it, which can read and write your files.
      encoders: NAME=FOLDER,NAME=FOLDER,...: the encoders. A folder is that of a run, its encoder/,
        or its clients/K, which `pretrain --personalized_clients` writes. The data flags of the
        first encoder's run hold unless they are given.
      run: Run whose page is written, by default into the run itself. Encoders in its clients/ are
        compared with its own. A client's encoder is the one after its local training if that is
        kept (fedbn with --hparam=keep_local=true, featarc), otherwise its personalized one.
      compare: RUN,RUN,...: runs to put side by side, or folders with the runs of --seeds.
      images: Split whose features --encoders shows.
      max_images: Largest number of images of --encoders; labelled ones if there are any, evenly
        over the classes.
    """

    run_saved_model_graph: bool = False
    encoders: tuple[str, ...] = ()
    run: str | None = None
    compare: tuple[str, ...] = ()
    images: Literal["test", "train"] = "test"
    max_images: int = flag(1000, 2)
    data: DataConfig = section(DataConfig)
    clients: ClientsConfig = section(ClientsConfig)
    model: ModelConfig = section(ModelConfig)


@dataclasses.dataclass(frozen=True)
class EmbedConfig(ScriptConfig):
    """What is embedded.

    Attributes:
      run: Folder of a pretraining run or of its encoder/, or a weights.npz.
      dataset: Kind of the images: {names}.
      data_dir: Folder or file of the images. A case_folder has a metadata.csv, a folder for each
        class, or no labels.
      follow_links: case_folder: also read links to folders and links that lead out of --data_dir.
        Default: as --run did, if it has the same --data_dir.
      skip_broken: case_folder, parquet, hf_disk: leave missing and broken images out.
        Default: as --run did, if it has the same --data_dir.
      num_clusters: Number of clusters; fewer if there are fewer different images.
      near_duplicates: Smallest cosine of the features of two images that count as near-duplicates.
    """

    run: str | None = None
    dataset: str = flag("case_folder", choices=catalog.OWN, names=", ".join(catalog.OWN))
    data_dir: str | None = None
    follow_links: bool = False
    skip_broken: bool = False
    num_clusters: int = flag(10, 1, 1000)
    # Encoders end with a ReLU, so that any two images have a high cosine. With an encoder that was
    # trained for two rounds on HAM10000, it is 0.97 in the median of random pairs, and 0.999
    # between an image and its copy of low JPEG quality.
    near_duplicates: float = flag(0.999, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class DetectConfig(ScriptConfig):
    """The configuration of a fine-tuning for detection.

    Attributes:
      run: Folder of a pretraining run, or of its encoder/; its encoder must be a ResNet.
      supervised_run: Folder of a run of the same encoder with labels (launch.centralized
        --objective=supervised), as a further start.
      starts: Encoders to fine-tune, one after the other: pretrained, that of --run; untrained, the
        same network with random weights; supervised, that of --supervised_run, which adds it.
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
