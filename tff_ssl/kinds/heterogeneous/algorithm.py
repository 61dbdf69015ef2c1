"""The kind of algorithms whose clients have different architectures; see `computations`."""

from tff_ssl.kinds.heterogeneous.computations import HeterogeneousComputations
from tff_ssl.kinds.heterogeneous.simulation import HeterogeneousClientsRun
from tff_ssl.kinds.protocol import RunSetting


class HeterogeneousClients(HeterogeneousComputations):
    """An algorithm whose clients have different architectures, for the clients of one run."""

    def plan_run(self, setting: RunSetting) -> HeterogeneousClientsRun:
        return HeterogeneousClientsRun(self, setting)
