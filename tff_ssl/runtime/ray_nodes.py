"""Runs on several machines: the nodes are Ray actors, each with a private TFF worker or a GPU.

Ray starts the nodes on this machine or on those of a cluster, carries states and sums between them,
and reports when a node has ended. The slice of a lost node goes to the next free node, and another
node is started in place of the lost one. TFF itself listens on no network.

Ray is an extra of the package (`uv run --extra ray ...`).
"""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from tff_ssl.errors import ClientFailedError, ConfigurationError, TrainingError
from tff_ssl.runtime import local_worker, ray_cluster
from tff_ssl.runtime.ray_actor import Actor, Facts, digest
from tff_ssl.runtime.slices import Partial, Slice

_LOG = logging.getLogger(__name__)
_PING_SECONDS = 1.0  # Time between two pings of a node.
# Time without an answer after which a node counts as frozen; under 10 s with the loop's delays.
_FROZEN_SECONDS = 6.0
_START_SECONDS = 180.0
_CLOSE_SECONDS = 10.0
_GONE_SECONDS = 90.0  # Time without any node after which the run is given up.
_MACHINES_SECONDS = 15.0  # Time between two queries for the cluster's machines.
# Nodes that may be lost over one slice of a round; random kills have hit a slice five times.
_MAX_LOST_NODES = 10


@dataclasses.dataclass
class _Node:
    """The driver's record of a node. Times are in seconds; references are Ray's, to results."""

    name: str  # Number of the node in the run.
    machine: str  # Ray's id of its machine.
    number: int  # Number of the node on its machine, from 0.
    of: int = 1  # Number of nodes on its machine.
    gpus: float = 0.0  # Number of GPUs that it asks for.
    actor: Any = None  # Ray's handle of its `Actor`.
    starting: Any = None  # Reference of `Actor.start`; None if the node has started.
    since: float = 0.0  # Time of the call of `Actor.start`.
    task: Any = None  # Reference of `Actor.work`; None if the node is free.
    slice_index: int = -1  # Index of the slice of `task`.
    ping: Any = None  # Reference of `Actor.ping`; None if no answer is awaited.
    pinged: float = 0.0  # Time of the last ping or of its answer.
    facts: Facts | None = None  # The node's description of itself; None before it has started.

    @property
    def is_alive(self) -> bool:
        return self.facts is not None

    def pending(self) -> list[Any]:
        return [ref for ref in (self.starting, self.task, self.ping) if ref is not None]


class RayNodes:
    """The nodes of a run; see `sliced_rounds.Nodes`.

    Attributes:
      restarts: Number of nodes that were lost and replaced so far.
    """

    def __init__(
        self,
        per_machine: int,
        files: Sequence[str | os.PathLike[str]],
        max_concurrent_calls: int | None = None,
        call_seconds: float | None = None,
        runtime: Literal["auto", "worker", "in_process"] = "auto",
        deterministic: bool = False,
    ):
        """Starts the nodes on all machines of the connected Ray cluster.

        Args:
          per_machine: Number of nodes on each machine that has processors for Ray; a machine with
            more GPUs has a node for each.
          files: Paths of the files that each machine must have with the same content.
          max_concurrent_calls: Limit of each node; see `local_worker.LocalWorker`.
          call_seconds: Time limit of a slice in seconds; see `local_worker.LocalWorker`.
          runtime: worker: nodes have TFF's worker, on the CPU. in_process: they compute in their
            own processes, on the GPUs of their machine, which they share. auto: worker with a time
            limit, otherwise in_process.
          deterministic: Whether GPUs only use algorithms whose results repeat bit for bit.

        Raises:
          ConfigurationError: If a file is missing or different on a node.
          TrainingError: If no node starts.
        """
        import ray

        self._ray = ray
        # Any: the types do not show the `remote` that Ray adds to the methods of `Actor`.
        self._actor_class: Any = ray.remote(Actor)
        self._per_machine = per_machine
        self._expected = {str(pathlib.Path(path).absolute()): digest(str(path)) for path in files}
        private = local_worker.private_is_required()
        if runtime == "auto":
            runtime = "in_process" if call_seconds is None else "worker"
        self._runtime = runtime
        own_process = runtime == "in_process"
        self._arguments = (
            max_concurrent_calls, call_seconds, private, own_process, deterministic
        )  # fmt: skip
        self._programs: dict[bytes, Any] = {}
        self._nodes: list[_Node] = []
        self._machines_queried = -_MACHINES_SECONDS
        self._last_alive = time.monotonic()
        self.restarts = 0
        latest = time.monotonic() + _START_SECONDS
        while not self._nodes or (len(self) < len(self._nodes) and time.monotonic() < latest):
            self._step(at_start=True)

    def __len__(self) -> int:
        return sum(node.is_alive for node in self._nodes)

    def facts(self) -> list[Facts]:
        """The descriptions of the nodes that are alive."""
        return [node.facts for node in self._nodes if node.facts is not None]

    def work_on(
        self, programs: Sequence[bytes], state: bytes, slices: Sequence[Slice], work: Sequence[int]
    ) -> list[Partial]:
        """See `sliced_rounds.Nodes`.

        Raises:
          ClientFailedError: If a client's computation fails.
          TrainingError: If there is no node left, or a slice ends each node that works on it.
        """
        # Programs stay in Ray's store for nodes that start later.
        for program in programs:
            if program not in self._programs:
                self._programs[program] = self._ray.put(program)
        shared = self._ray.put(state)
        # Slices are taken from the end, the heaviest first, so the last ones are short.
        waiting = sorted(range(len(slices)), key=lambda k: (work[k], -k))
        done: dict[int, Partial] = {}
        lost_nodes = [0] * len(slices)
        failure: ClientFailedError | None = None
        for node in self._nodes:
            if node.ping is not None:  # Answers are not collected between rounds.
                node.pinged = time.monotonic()
        try:
            # Even after a client's failure, nodes are busy until their current slices end.
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
                        lost_nodes[index] += 1
                        if lost_nodes[index] >= _MAX_LOST_NODES:
                            raise TrainingError(
                                f"{_MAX_LOST_NODES} nodes in turn ended while they worked on the "
                                f"same {len(slices[index].groups)} clients (out of memory?)"
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
        self._end([node.actor for node in self._nodes])

    def _end(self, actors: Sequence[Any]) -> None:
        """Ends nodes; Ray's `kill` alone would leave the folders of their TFF workers behind."""
        with contextlib.suppress(Exception):
            closing = [actor.close.remote() for actor in actors]
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for actor in actors:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)

    def _step(self, at_start: bool = False) -> list[tuple[int, Partial | ClientFailedError | None]]:
        """Waits for answers for a moment, and replaces lost nodes.

        `at_start` is whether the run has not begun: missing files are then errors. Returns (index
        of a slice, its result) for each slice that has ended; the result is None if its node is
        lost.
        """
        self._update_machines()
        arrived = self._wait_for_results()
        ended: list[tuple[int, Partial | ClientFailedError | None]] = []
        for node in list(self._nodes):
            try:
                if node.task in arrived:
                    ended.append((node.slice_index, self._ray.get(node.task)))
                    node.task = None
                self._check_alive(node, arrived, at_start)
            except _ray_errors() as error:
                if node.task is not None:
                    ended.append((node.slice_index, None))
                self._replace(node, error)
        self._check_any_alive(at_start)
        return ended

    def _wait_for_results(self) -> set[Any]:
        """Waits up to half a ping interval for a result; returns the references of all results."""
        pending = [ref for node in self._nodes for ref in node.pending()]
        if not pending:
            time.sleep(_PING_SECONDS / 2)
            return set()
        first, _ = self._ray.wait(pending, num_returns=1, timeout=_PING_SECONDS / 2)
        ready, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0)
        return {*first, *ready}

    def _check_any_alive(self, at_start: bool) -> None:
        """Raises a TrainingError if there has been no node for too long."""
        now = time.monotonic()
        if len(self):
            self._last_alive = now
        elif at_start:
            if now - self._last_alive > _START_SECONDS:
                raise TrainingError(
                    f"no node has started within {_START_SECONDS:.0f} s: has the Ray cluster "
                    "processors that nobody else has taken?"
                )
        elif now - self._last_alive > _GONE_SECONDS:
            raise TrainingError(
                f"no node is left, and none has come back within {_GONE_SECONDS:.0f} s: the "
                "last checkpoint is intact, --resume continues from there"
            )

    def _check_alive(self, node: _Node, arrived: set[Any], at_start: bool) -> None:
        """Accepts a node that has started, pings one that runs; raises one of `_ray_errors`."""
        now = time.monotonic()
        if node.starting is not None:
            if node.starting in arrived:
                facts = self._ray.get(node.starting)
                node.starting, node.pinged = None, now
                self._accept(node, facts, at_start)
            elif now - node.since > _START_SECONDS:
                raise _NoAnswerError("it has not started")
            return
        if node.ping is None:
            if now - node.pinged > _PING_SECONDS:
                node.ping, node.pinged = node.actor.ping.remote(), now
        elif node.ping in arrived:
            self._ray.get(node.ping)
            node.ping, node.pinged = None, now
        elif now - node.pinged > _FROZEN_SECONDS:
            raise _NoAnswerError(f"no answer for {_FROZEN_SECONDS:.0f} s")

    def _accept(self, node: _Node, facts: Facts, at_start: bool) -> None:
        """Accepts a node that has the same files as this machine, and drops any other node."""
        name = f"node {node.name} ({facts.host})"
        for path, expected in self._expected.items():
            actual = facts.digests[path]
            if actual == expected:
                continue
            found = f"no {path}" if actual is None else f"another {path} than this machine"
            message = (
                f"{name} has {found}: copy the file there, under the same path, and start again "
                "with --resume"
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

    def _update_machines(self) -> None:
        """Starts nodes on machines that have joined, and drops those of machines that have left."""
        if time.monotonic() - self._machines_queried < _MACHINES_SECONDS:
            return
        self._machines_queried = time.monotonic()
        resources = {
            machine["NodeID"]: machine["Resources"]
            for machine in self._ray.nodes()
            if machine["Alive"] and machine["Resources"].get("CPU", 0) >= 1
        }
        machines = resources.keys()
        known = {node.machine for node in self._nodes}
        self._nodes = [node for node in self._nodes if node.is_alive or node.machine in machines]
        for machine in sorted(machines - known):
            there = resources[machine]
            gpus = 0.0 if self._runtime == "worker" else there.get("GPU", 0.0)
            # One for each GPU, since TensorFlow computes on one.
            number_of_nodes = max(self._per_machine, int(min(gpus, there["CPU"])))
            for number in range(number_of_nodes):
                # As many shares of a GPU as nodes that use it, since Ray splits none among GPUs.
                share = 1.0 / math.ceil(number_of_nodes / gpus) if gpus else 0.0
                node = _Node(str(len(self._nodes)), machine, number, number_of_nodes, share)
                self._start(node)
                self._nodes.append(node)

    def _start(self, node: _Node) -> None:
        on_machine = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node.machine, soft=False
        )
        # One thread works on slices, the other one answers pings.
        options = {
            "num_cpus": 1,
            "num_gpus": node.gpus,
            "max_concurrency": 2,
            "scheduling_strategy": on_machine,
        }
        share = (node.number, node.of)
        node.actor = self._actor_class.options(**options).remote(share, *self._arguments)
        node.starting = node.actor.start.remote(list(self._expected))
        node.since = time.monotonic()
        node.facts = node.task = node.ping = None

    def _replace(self, node: _Node, error: Exception) -> None:
        """Replaces a process that has ended or is frozen."""
        self.restarts += 1
        reason = str(error) if isinstance(error, _NoAnswerError) else "it ended"
        _LOG.warning(
            "node %s is lost (%s); others do its work while it restarts", node.name, reason
        )
        with contextlib.suppress(Exception):
            # This ends a frozen process too, by SIGKILL after a few seconds.
            self._ray.kill(node.actor)
        self._machines_queried = -_MACHINES_SECONDS  # The machine may have left.
        self._start(node)


class _NoAnswerError(Exception):
    """Raised if a node does not answer."""


def _ray_errors() -> tuple[type[Exception], ...]:
    """The errors of a lost node, as opposed to a failure of its work."""
    from ray import exceptions

    return (
        _NoAnswerError,
        exceptions.RayActorError,
        exceptions.ActorUnschedulableError,
        exceptions.ObjectLostError,
        exceptions.NodeDiedError,
    )


@contextlib.contextmanager
def ray_nodes(
    address: str,
    files: Sequence[str | os.PathLike[str]],
    max_concurrent_calls: int | None = None,
    call_seconds: float | None = None,
    runtime: Literal["auto", "worker", "in_process"] = "auto",
    deterministic: bool = False,
) -> Iterator[RayNodes]:
    """Starts nodes for a `with` block; see `ray_cluster.connected` and `RayNodes`.

    Raises:
      ConfigurationError: If Ray is not installed, does not start or cannot be reached; or if a file
        is missing or different on a node.
    """
    with ray_cluster.connected(address) as per_machine:
        nodes = RayNodes(
            per_machine, files, max_concurrent_calls, call_seconds, runtime, deterministic
        )
        try:
            yield nodes
        finally:
            nodes.close()
