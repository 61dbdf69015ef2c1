"""A fifth kind of algorithm, defined here alone, which all scripts can use."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.launch import configs
from tff_ssl.algorithms import registry
from tff_ssl.errors import ConfigurationError
from tff_ssl.kinds.protocol import (
    FederatedAlgorithm,
    Need,
    PlannedRun,
    RoundToLower,
    RunSetting,
)
from tff_ssl.models.dual_encoder import DualEncoder, Weights
from tff_ssl.simulation.training_loop import Simulation


@dataclasses.dataclass(frozen=True)
class DecayHyperparameters:
    """Factor by which every round multiplies the weights."""

    factor: float = 0.5


@dataclasses.dataclass(frozen=True)
class Decay(FederatedAlgorithm):
    """Clients that send the number of their examples; the server's weights decay."""

    kind: ClassVar[str] = "decay"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.COHORTS})
    has_client_models: ClassVar[bool] = False

    model: DualEncoder
    factor: float
    count: tff.Computation

    def client_bytes(self) -> tuple[int, int]:
        return 0, 8

    def rounds_to_lower(self) -> dict[str, RoundToLower]:
        return {"count": RoundToLower("number of examples", None, self.count)}

    def plan_run(self, setting: RunSetting) -> "DecayRun":
        return DecayRun(self, setting)


class DecayRun(PlannedRun):
    def __init__(self, algorithm: Decay, setting: RunSetting):
        self.algorithm, self.setting = algorithm, setting

    @property
    def clients_at_once(self) -> int:
        return self.setting.participation.clients_per_round

    def describe(self) -> str:
        return f"{self.setting.rounds} rounds of decay"

    def result_fields(self):
        return {"factor": self.algorithm.factor}

    def simulate(self, group_data, folder, slicing=None) -> Simulation:
        return DecaySimulation(self.algorithm, group_data, self.setting.participation.cohorts)


class DecaySimulation(Simulation):
    def __init__(self, algorithm, group_data, cohorts):
        self.algorithm, self.cohorts = algorithm, cohorts
        indices = tff.types.FederatedType(group_data.type_signature.parameter, tff.CLIENTS)

        @tff.federated_computation(indices)
        def next_round(indices):
            return algorithm.count(tff.federated_map(group_data, indices))

        self.next_round = next_round

    def initialize(self, seed):
        return self.algorithm.model.init(seed)

    def run_round(self, state, round_number):
        clients = self.cohorts(round_number)
        samples = self.next_round([np.array([client], np.int64) for client in clients])
        state = tf.nest.map_structure(lambda t: self.algorithm.factor * t, state)
        return state, {"loss": 0.0, "encoding_std": 0.0, "samples": int(samples)}

    def encoder_weights(self, state, client_id=None):
        return Weights(*state)


def build_decay(task, hyperparameters):
    examples_type = tff.types.SequenceType(task.element_type)

    @tff.tensorflow.computation(examples_type)
    def length(examples):
        return examples.reduce(np.int64(0), lambda n, _: n + 1)

    @tff.federated_computation(tff.types.FederatedType(examples_type, tff.CLIENTS))
    def count(examples):
        return tff.federated_sum(tff.federated_map(length, examples))

    return Decay(task.model, hyperparameters.factor, count)


@pytest.mark.long
@pytest.mark.slow
def test_scripts_take_a_kind_that_they_have_never_seen(monkeypatch, project_root, tmp_path, capsys):
    monkeypatch.chdir(project_root)
    from launch import lower
    from launch.runs import federated

    entry = registry.Algorithm("decay", Decay, DecayHyperparameters, build_decay, ("nt_xent",))
    monkeypatch.setitem(registry.ALGORITHMS, "decay", entry)
    flags = ("--algorithm=decay", "--encoder=tiny", "--projector=8", "--rounds=3",
             "--clients_per_round=2", "--hparam=factor=0.25", "--labels_per_class=1",
             "--label_draws=1", "--baselines=", "--eval_every=0")  # fmt: skip
    federated.pretrain(configs.run(*flags, f"--output_dir={tmp_path / 'run'}"))
    lower.main(configs.run(*flags, f"--output_dir={tmp_path / 'lowered'}", script="lower"))
    output = capsys.readouterr().out
    assert "3 rounds of decay" in output
    assert json.loads((tmp_path / "run" / "result.json").read_text())[0]["factor"] == 0.25
    rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert len(rows) == 4
    assert {path.name for path in (tmp_path / "lowered").iterdir()} >= {"count"}
    config = configs.run(*flags, "--topology=cycle", f"--output_dir={tmp_path / 'other'}")
    with pytest.raises(ConfigurationError, match="--topology: decay has a server, and no network"):
        federated.pretrain(config)
