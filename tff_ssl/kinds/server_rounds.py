"""The parts of a planned run that all kinds with a server share."""

from typing import Any

from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.simulation.participation import Participation


class ServerRounds:
    """Rounds in which a server samples a cohort of clients.

    Attributes:
      setting: The clients of the run.
      client_bytes: Bytes that a client receives and sends in a round.
    """

    def __init__(self, setting: RunSetting, client_bytes: tuple[int, int]):
        self.setting = setting
        self.client_bytes = client_bytes

    @property
    def participation(self) -> Participation:
        """Clients that take part in each round."""
        if self.setting.participation is None:
            raise ValueError("a kind of algorithm with a server needs a participation")
        return self.setting.participation

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
            f"{f'folded into {groups}' if groups else 'each by itself'}; "
            f"{down / 1e6:.2f} MB down and {up / 1e6:.2f} MB up per client and round"
        )

    def result_fields(self) -> dict[str, Any]:
        down, up = self.client_bytes
        return {"bytes_down_per_client_and_round": down, "bytes_up_per_client_and_round": up}
