"""The kind of algorithms with a server and clients that keep nothing between rounds.

Their round is a `tff.learning.templates.LearningProcess`, for any TFF program or stack.
"""

from tff_ssl.kinds.protocol import RunSetting
from tff_ssl.kinds.stateless.computations import StatelessComputations
from tff_ssl.kinds.stateless.simulation import StatelessClientsRun


class StatelessClients(StatelessComputations):
    """An algorithm with a server and clients that keep nothing between rounds."""

    def plan_run(self, setting: RunSetting) -> StatelessClientsRun:
        return StatelessClientsRun(self, setting)
