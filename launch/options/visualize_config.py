"""The configuration of `visualize`."""

import dataclasses
from typing import Literal

from launch.options.image_config import ClientsConfig, DataConfig, ModelConfig
from launch.options.run_config import ScriptConfig
from launch.options.settings import flag, section


@dataclasses.dataclass(frozen=True)
class VisualizeConfig(ScriptConfig):
    """What is drawn or compared.

    Attributes:
      run_saved_model_graph: Run the graph of a SavedModel that has no weights.npz beside it. A
        SavedModel is a program of whoever wrote it, which can read and write your files.
      encoders: NAME=FOLDER,NAME=FOLDER,...: the encoders. A folder is that of a run, its encoder/,
        or its clients/K, which `pretrain --personalized_clients` writes. The data flags of the
        first encoder's run hold unless they are given.
      run: A run, whose page is written; --output_dir is the run itself unless it is given. If it
        has encoders in its clients/, they are compared with its own. A client's encoder is the one
        after its local training where that is kept (fedbn with --hparam=keep_local=true, featarc),
        otherwise its personalized one.
      compare: RUN,RUN,...: runs that are put side by side.
      images: Split whose features are shown by --encoders.
      max_images: Largest number of images of --encoders. Where there are labels, only images with a
        label are drawn, evenly over the classes.
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
