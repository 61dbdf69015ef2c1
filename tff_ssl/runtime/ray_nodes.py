"""Several machines: nodes that are Ray's actors, each with a private TFF worker of its own.

Ray starts the nodes, on this machine or on the machines of a cluster, carries states and sums
between them, and says when one is gone. A slice of a node that is lost goes to the next one that is
free, while another is started in its place. TFF itself listens on no network.

Ray is an extra of the package: `uv sync --extra ray`.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tff_ssl.errors import ClientFailedError, ConfigurationError, TrainingError
from tff_ssl.runtime import ray_cluster
from tff_ssl.runtime.ray_actor import Actor, Facts, digest
from tff_ssl.runtime.slices import Partial, Slice

_LOG = logging.getLogger(__name__)
_PING_SECONDS = 1.0
FROZEN_SECONDS = 6.0  # Without an answer; with the loop's own delays, below ten.
_START_SECONDS = 180.0
_CLOSE_SECONDS = 10.0
GONE_SECONDS = 90.0  # Without any node, before the run is given up.
_NODES_SECONDS = 15.0  # Between two looks at which machines there are.
_LOSSES = 10  # Of nodes, over one slice of a round; random kills have hit one five times.


@dataclasses.dataclass
class _Node:
    """A node as its driver sees it; `task` and `ping` are Ray's references to what it owes."""

    name: str
    machine: str
    number: int  # On its machine.
    actor: Any = None
    starting: Any = None
    since: float = 0.0
    task: Any = None
    slice_index: int = -1
    ping: Any = None
    pinged: float = 0.0
    facts: Facts | None = None

    @property
    def is_alive(self) -> bool:
        return self.facts is not None

    def owed(self) -> list[Any]:
        return [ref for ref in (self.starting, self.task, self.ping) if ref is not None]


class RayNodes:
    """The nodes of a run; see `sliced_rounds.Nodes`.

    Attributes:
      restarts: How many nodes were lost so far.
    """

    def __init__(
        self,
        per_machine: int,
        files: Sequence[str | os.PathLike[str]],
        max_concurrent_calls: int | None = None,
        call_seconds: float | None = None,
        gone_seconds: float = GONE_SECONDS,
    ):
        """Starts the nodes on all machines of the Ray cluster that this process is connected to.

        Args:
          per_machine: Nodes on each machine that has processors for Ray.
          files: What each machine must have, the same under the same path.
          max_concurrent_calls: Of each node; see `local_worker.LocalWorker`.
          call_seconds: How long a slice may take; see `local_worker.LocalWorker`.
          gone_seconds: How long to wait for a node when there is none left.

        Raises:
          ConfigurationError: If a node misses a file or has another one.
          TrainingError: If no node starts.
        """
        import ray

        self._ray = ray
        self._actor_class = ray.remote(Actor)
        self._per_machine = per_machine
        self._expected = {str(pathlib.Path(path).absolute()): digest(str(path)) for path in files}
        self._of_workers = (max_concurrent_calls, call_seconds)
        self._gone_seconds = gone_seconds
        self._programs: dict[bytes, Any] = {}
        self._nodes: list[_Node] = []
        self._looked = -_NODES_SECONDS
        self._last_alive = time.monotonic()
        self.restarts = 0
        latest = time.monotonic() + _START_SECONDS
        while not self._nodes or (len(self) < len(self._nodes) and time.monotonic() < latest):
            self._step(at_start=True)

    def __len__(self) -> int:
        """Nodes that are alive."""
        return sum(node.is_alive for node in self._nodes)

    def facts(self) -> list[Facts]:
        """Of the nodes that are alive."""
        return [node.facts for node in self._nodes if node.facts is not None]

    def work_on(
        self, programs: Sequence[bytes], state: bytes, slices: Sequence[Slice], work: Sequence[int]
    ) -> list[Partial]:
        """See `sliced_rounds.Nodes`.

        Raises:
          ClientFailedError: If a client's computation fails.
          TrainingError: If there is no node left, or a slice ends each node that works on it.
        """
        # Kept: a node that starts later needs it too.
        for program in programs:
            if program not in self._programs:
                self._programs[program] = self._ray.put(program)
        shared = self._ray.put(state)
        # The heaviest last, where they are taken from: what is left at the end is small.
        waiting = sorted(range(len(slices)), key=lambda k: (work[k], -k))
        done: dict[int, Partial] = {}
        losses = [0] * len(slices)
        failure: ClientFailedError | None = None
        self._forget_old_pings()
        try:
            # If a client fails, what others work on is still waited for: it keeps them busy.
            while waiting or any(node.task is not None for node in self._nodes):
                for node in self._nodes:
                    if waiting and node.is_alive and node.task is None:
                        node.slice_index = waiting.pop()
                        program = self._programs[programs[node.slice_index]]
                        part = slices[node.slice_index]
                        node.task = node.actor.work.remote(program, shared, part)
                for index, result in self._step():
                    if isinstance(result, ClientFailedError):
                        failure = result
                    elif result is not None:
                        done[index] = result
                    else:
                        losses[index] += 1
                        if losses[index] >= _LOSSES:
                            raise TrainingError(
                                f"{_LOSSES} nodes in turn ended while they worked on the same "
                                f"{len(slices[index].groups)} clients (out of memory?)"
                            )
                        waiting.append(index)
                if failure:
                    waiting.clear()
        finally:
            for node in self._nodes:
                node.task = None
        if failure:
            raise failure
        return [done[k] for k in range(len(slices))]

    def close(self) -> None:
        """Ends the nodes."""
        self._end([node.actor for node in self._nodes])

    def _end(self, actors: Sequence[Any]) -> None:
        """Ray's own way to end them would leave their TFF workers' folders behind."""
        with contextlib.suppress(Exception):
            closing = [actor.close.remote() for actor in actors]
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for actor in actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)

    def _step(self, at_start: bool = False) -> list[tuple[int, Partial | ClientFailedError | None]]:
        """Waits a moment; the slices that are done since, or failed, or lost: None."""
        self._look_for_machines()
        owed = [ref for node in self._nodes for ref in node.owed()]
        if owed:
            ready, _ = self._ray.wait(owed, num_returns=1, timeout=_PING_SECONDS / 2)
            more, _ = self._ray.wait(owed, num_returns=len(owed), timeout=0)
        else:
            time.sleep(_PING_SECONDS / 2)
            ready = more = []
        arrived = {*ready, *more}
        events: list[tuple[int, Partial | ClientFailedError | None]] = []
        for node in list(self._nodes):
            try:
                if node.task in arrived:
                    events.append((node.slice_index, self._ray.get(node.task)))
                    node.task = None
                self._check(node, arrived, at_start)
            except _ray_errors() as error:
                if node.task is not None:
                    events.append((node.slice_index, None))
                self._replace(node, error)
        now = time.monotonic()
        if len(self):
            self._last_alive = now
        elif at_start:
            if now - self._last_alive > _START_SECONDS:
                raise TrainingError(
                    f"no node has started within {_START_SECONDS:.0f} s: has the Ray cluster "
                    "processors that nobody else has taken?"
                )
        elif now - self._last_alive > self._gone_seconds:
            raise TrainingError(
                f"no node is left, and none has come back within {self._gone_seconds:.0f} s: the "
                "last checkpoint is intact, --resume goes on from there"
            )
        return events

    def _check(self, node: _Node, arrived: set[Any], at_start: bool) -> None:
        """Whether it has started, and whether it answers."""
        now = time.monotonic()
        if node.starting is not None:
            if node.starting in arrived:
                facts = self._ray.get(node.starting)
                node.starting, node.pinged = None, now
                self._accept(node, facts, at_start)
            elif now - node.since > _START_SECONDS:
                raise _NoAnswer("it has not started")
            return
        if node.ping is None:
            if now - node.pinged > _PING_SECONDS:
                node.ping, node.pinged = node.actor.ping.remote(), now
        elif node.ping in arrived:
            self._ray.get(node.ping)
            node.ping, node.pinged = None, now
        elif now - node.pinged > FROZEN_SECONDS:
            raise _NoAnswer(f"no answer for {FROZEN_SECONDS:.0f} s")

    def _accept(self, node: _Node, facts: Facts, at_start: bool) -> None:
        """Takes a node that has the data; complains at the start of the run if it has not."""
        name = f"node {node.name} ({facts.host})"
        for path, expected in self._expected.items():
            found = facts.digests[path]
            if found == expected:
                continue
            what = f"has no {path}" if found is None else f"has another {path} than this machine"
            message = (
                f"{name} {what}: copy the file there, under the same path, and start again with "
                "--resume"
            )
            if at_start:
                raise ConfigurationError(message)
            _LOG.warning("%s; it is left out", message)
            self._end([node.actor])
            node.starting = node.ping = None
            self._nodes.remove(node)
            return
        if facts.open_port is not None:
            _LOG.warning("%s: TFF's worker is open to the network, port %d", name, facts.open_port)
        node.facts = facts

    def _look_for_machines(self) -> None:
        """Nodes for machines that have joined, and none for those that have left."""
        if time.monotonic() - self._looked < _NODES_SECONDS:
            return
        self._looked = time.monotonic()
        machines = {
            machine["NodeID"]
            for machine in self._ray.nodes()
            if machine["Alive"] and machine["Resources"].get("CPU", 0) >= 1
        }
        known = {node.machine for node in self._nodes}
        self._nodes = [node for node in self._nodes if node.is_alive or node.machine in machines]
        for machine in sorted(machines - known):
            for number in range(self._per_machine):
                node = _Node(str(len(self._nodes)), machine, number)
                self._start(node)
                self._nodes.append(node)

    def _start(self, node: _Node) -> None:
        where = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node.machine, soft=False
        )
        # One thread works, one answers.
        options = {"num_cpus": 1, "max_concurrency": 2, "scheduling_strategy": where}
        share = (node.number, self._per_machine)
        node.actor = self._actor_class.options(**options).remote(share, *self._of_workers)
        node.starting = node.actor.start.remote(list(self._expected))
        node.since = time.monotonic()
        node.facts = node.task = node.ping = None

    def _replace(self, node: _Node, error: Exception) -> None:
        """Starts another process in place of one that is dead or frozen."""
        self.restarts += 1
        reason = str(error) if isinstance(error, _NoAnswer) else "it ended"
        _LOG.warning(
            "node %s is lost (%s); others do its work while it restarts", node.name, reason
        )
        with contextlib.suppress(Exception):
            self._ray.kill(node.actor)  # A frozen process, too: by SIGKILL after a few seconds.
        self._looked = -_NODES_SECONDS  # Perhaps its machine is gone.
        self._start(node)

    def _forget_old_pings(self) -> None:
        """Between two rounds nobody looks for answers."""
        for node in self._nodes:
            if node.ping is not None:
                node.pinged = time.monotonic()


class _NoAnswer(Exception):
    """A node does not answer."""


def _ray_errors() -> tuple[type[Exception], ...]:
    """What says that a node is gone; a failure of the work itself is none of it."""
    from ray import exceptions

    return (
        _NoAnswer,
        exceptions.RayActorError,
        exceptions.ActorUnschedulableError,
        exceptions.ObjectLostError,
        exceptions.NodeDiedError,
    )


@contextlib.contextmanager
def ray_nodes(
    where: str,
    files: Sequence[str | os.PathLike[str]],
    max_concurrent_calls: int | None = None,
    call_seconds: float | None = None,
) -> Iterator[RayNodes]:
    """The nodes for a `with` block.

    Args:
      where: See `ray_cluster.connected`.
      files: See `RayNodes`.
      max_concurrent_calls: See `RayNodes`.
      call_seconds: See `RayNodes`.

    Raises:
      ConfigurationError: If Ray is not installed or not there, or a node misses a file.
    """
    with ray_cluster.connected(where) as per_machine:
        nodes = RayNodes(per_machine, files, max_concurrent_calls, call_seconds)
        try:
            yield nodes
        finally:
            nodes.close()
