"""The parts that all kinds with a server share."""

from typing import Any

from tff_ssl.kinds.protocol import PlannedRun, RunSetting
from tff_ssl.simulation.participation import Participation


class ServerRun(PlannedRun):
    """A run whose server samples a cohort of clients in each round.

    Attributes:
      algorithm: The algorithm, of one of the kinds with a server.
      setting: The clients of the run.
      participation: Clients that take part in each round.
      client_bytes: Bytes that a client receives and sends in a round.
    """

    def __init__(self, algorithm: Any, setting: RunSetting):
        if setting.participation is None:
            raise ValueError("a kind of algorithm with a server needs a participation")
        self.algorithm, self.setting = algorithm, setting
        self.participation: Participation = setting.participation
        self.client_bytes = algorithm.client_bytes()

    @property
    def untrained_clients_have_models(self) -> bool:
        return False

    @property
    def clients_at_once(self) -> int:
        return self.setting.groups or self.participation.clients_per_round

    def describe(self) -> str:
        down, up = self.client_bytes
        groups = self.setting.groups
        return (
            f"{self.setting.rounds} rounds of {self.participation.describe()}, "
            f"{f'folded into {groups}' if groups else 'not folded'}; "
            f"{down / 1e6:.2f} MB down and {up / 1e6:.2f} MB up per client and round"
        )

    def result_fields(self) -> dict[str, Any]:
        down, up = self.client_bytes
        return {"bytes_down_per_client_and_round": down, "bytes_up_per_client_and_round": up}
