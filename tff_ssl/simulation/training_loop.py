"""The round loop: checkpoints, resuming, metrics and progress."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import logging
import math
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import whole_files
from tff_ssl.errors import TrainingError
from tff_ssl.models.dual_encoder import Weights
from tff_ssl.simulation.checkpoints import Checkpoints
from tff_ssl.simulation.metrics_log import PUT_BACK, RoundLog, TableDigest, trim_metrics, whole_rows
from tff_ssl.simulation.packing import is_finite, pack, unpack
from tff_ssl.simulation.progress import Progress

_LOG = logging.getLogger(__name__)
# Signals that scripts turn into a KeyboardInterrupt.
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Files of a run whose content a checkpoint knows.
_CONFIGURATION, *_TABLES = "config.json", "metrics.csv", "client_metrics.csv"
_Packed = dict[str, np.ndarray]  # Result of `pack`.


class Simulation(Protocol):
    """A run's simulation, which the training loop drives."""

    def initialize(self, seed: int) -> Any:
        """The state before round 0."""

    def run_round(self, state: Any, round_number: int) -> tuple[Any, dict[str, float]]:
        """The state after a round, and the round's metrics; a pure function of its arguments."""

    def encoder_weights(self, state: Any, client_id: str | None = None) -> Weights:
        """Weights of the global model, or of a client's own model.

        Args:
          state: The state of the run.
          client_id: Number of the client; None for the global model, or for the one that the run
            is evaluated with if there is no global model.
        """

    def local_weights(self, state: Any, client: int) -> Weights | None:
        """Weights after the client's last local training; None where they are not kept."""
        return None

    def on_start(self, states: Sequence[Any], done: int) -> None:
        """Is called before the first round, and may delete files that a killed run has left.

        Args:
          states: States of the checkpoints on the disk, oldest first; the run continues from the
            last one.
          done: Number of completed rounds.
        """
        return None

    def on_checkpoint(self, state: Any) -> None:
        """Is called after the writing of a checkpoint of this state."""
        return None


@dataclasses.dataclass(frozen=True)
class TrainingLoop:
    """The loop over the rounds of a run."""

    output_dir: pathlib.Path  #: Folder of `checkpoints/`, `metrics.csv` and `tensorboard/`.
    rounds: int  #: Number of rounds of the whole run.
    #: Number of rounds between two checkpoints; there is also one at the end and one on Ctrl-C.
    checkpoint_every: int
    monitor_every: int = 0  #: Number of rounds between two calls of `monitor`; 0 for none.
    #: State -> metrics by name, such as the accuracy of a kNN classifier on training data.
    monitor: Callable[[Any], dict[str, float]] | None = None
    #: Hash of the settings on which the training depends; checkpoints keep it.
    configuration: str = ""

    def run(self, simulation: Simulation, seed: int) -> Any:
        """Trains from the last checkpoint, or from the start; returns the state after all rounds.

        Rows of metrics after the checkpoint are deleted, so that each round has one row.

        Raises:
          TrainingError: If the loss or the weights are no longer finite, no checkpoint can be read,
            the configuration or metrics are not those of the checkpoint, or a file cannot be
            written (a full disk). The checkpoints are unchanged then.
          KeyboardInterrupt: If the user stops the run, after a checkpoint has been written.
        """
        initial = simulation.initialize(seed)
        with _interrupts_delayed():
            restored, done, damaged = _readable(self._checkpoints, initial)
            for version in damaged:
                self._checkpoints.set_aside(version)
        state = restored[-1] if restored else initial
        self._check_unchanged(done)
        with _writing(self.output_dir, done):
            whole_files.remove_unfinished(self.output_dir)
            trim_metrics(self._metrics_path, done)
            simulation.on_start(restored, done)
            del restored  # The state of an earlier checkpoint is large.
            releases = [
                RoundLog(self._metrics_path),
                tff.program.TensorBoardReleaseManager(self.output_dir / "tensorboard"),
            ]
        saved, files = done, self._files()
        progress = Progress(done, self.rounds)
        try:
            while done < self.rounds:
                next_state, packed, metrics = self._round(simulation, state, done)
                with _interrupts_delayed():
                    with _writing(self.output_dir, saved):
                        for manager in releases:
                            _release(manager, metrics, done + 1)
                    # The row comes first: a run cannot resume from a checkpoint without its row.
                    state, done = next_state, done + 1
                    progress.show(done, metrics)
                    if packed is not None:
                        self._save(simulation, state, packed, done, saved, files)
                        saved = done
        except KeyboardInterrupt:
            with _interrupts_delayed():
                packed = pack(state) if done > saved else {}
                diverged = not all(map(is_finite, packed.values()))
                last = saved if diverged else done
                # Deletes the row of a round that was stopped before it was counted.
                trim_metrics(self._metrics_path, last)
                if last > saved:
                    self._save(simulation, state, packed, last, saved, files)
            kept = "the checkpoint is saved" if last else "there is nothing to save yet"
            if diverged:
                kept = f"its state is not finite, so that --resume continues after round {last}"
            progress.note(f"stopped after round {done} of {self.rounds}; {kept}")
            raise
        finally:
            progress.close()
        return state

    def _round(self, simulation: Simulation, state: Any, done: int):
        """Runs and checks a round: its state, the content of a checkpoint or None, its metrics."""
        start = time.monotonic()
        state, metrics = simulation.run_round(state, done)
        # A round without sampled clients has no loss.
        if not math.isfinite(metrics["loss"]) and metrics.get("samples", 1):
            raise _diverged(f"the loss of round {done + 1} is {metrics['loss']}")
        metrics["seconds"] = time.monotonic() - start
        done += 1
        monitored = self.monitor_every and (done % self.monitor_every == 0 or done == self.rounds)
        saved = done % self.checkpoint_every == 0 or done == self.rounds
        # The loss is that of the weights before the update, so the new weights are checked too.
        if (monitored or saved) and not _finite(simulation.encoder_weights(state)):
            raise _diverged(f"the weights after round {done} are not finite")
        packed = pack(state) if saved else None
        # `unpack` rejects values that are not finite.
        if packed is not None and not all(map(is_finite, packed.values())):
            raise _diverged(f"the state of the training after round {done} is not finite")
        if self.monitor and monitored:
            metrics |= self.monitor(state)
        return state, packed, metrics

    @property
    def _metrics_path(self) -> str:
        return str(self.output_dir / "metrics.csv")

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.output_dir / "checkpoints")

    def _save(
        self,
        simulation: Simulation,
        state: Any,
        packed: _Packed,
        done: int,
        saved: int,
        files: Sequence[TableDigest],
    ) -> None:
        with _writing(self.output_dir / "checkpoints", saved):
            self._checkpoints.save(packed, done, self._digests(files, done))
            simulation.on_checkpoint(state)

    def _files(self) -> list[TableDigest]:
        return [TableDigest(self.output_dir / name) for name in _TABLES]

    def _digests(self, files: Sequence[TableDigest], done: int) -> dict[str, str]:
        """What a checkpoint says of the run's other files, by their names."""
        tables = {name: table.up_to(done) for name, table in zip(_TABLES, files, strict=True)}
        return {_CONFIGURATION: self.configuration, **tables}

    def _check_unchanged(self, done: int) -> None:
        """Compares the run's other files with what the checkpoint of a round says of them."""
        if not done:
            return
        before = self._checkpoints.digests(done)
        if not before:
            print(
                f"note: the checkpoint of round {done} is of an earlier release, so that changes "
                f"of {', '.join([_CONFIGURATION, *_TABLES])} since then are not noticed",
                flush=True,
            )
            return
        whole_rows(self._metrics_path, done)
        for name, now in self._digests(self._files(), done).items():
            if before.get(name) != now:
                raise TrainingError(
                    f"{self.output_dir / name} differs from what it was at the checkpoint of round "
                    f"{done}: {PUT_BACK}"
                )


def last_state(output_dir: pathlib.Path, initial: Any) -> tuple[Any, int]:
    """The state of the last readable checkpoint of a run, and its round; changes no file.

    Args:
      output_dir: Folder of the run.
      initial: State before the first round, which gives the structure.

    Raises:
      TrainingError: There are no checkpoints, or none of them can be read.
    """
    checkpoints = Checkpoints(output_dir / "checkpoints")
    states, done, _ = _readable(checkpoints, initial)
    if not states:
        raise TrainingError(f"{output_dir} has no checkpoints")
    return states[-1], done


def _readable(checkpoints: Checkpoints, initial: Any) -> tuple[list[Any], int, list[int]]:
    """States of the readable checkpoints, oldest first; the last one's round; damaged later ones.

    Raises:
      TrainingError: None of the checkpoints can be read.
    """
    versions = checkpoints.versions()
    states: list[Any] = []
    damaged, done = [], 0
    for version in reversed(versions):
        try:
            states.insert(0, unpack(checkpoints.load(version), initial))
            done = max(done, version)
        # Whatever is wrong with this file, the one before may be sound.
        except Exception as error:
            if states:  # The run does not need this one.
                continue
            damaged.append(version)
            _LOG.warning(
                "checkpoint %s cannot be read (%s); trying the one before",
                checkpoints.path(version),
                str(error).splitlines()[0] if str(error) else type(error).__name__,
            )
    if versions and not states:
        raise TrainingError(
            f"none of the checkpoints in {checkpoints.folder} can be read; put back whole ones, or "
            "start the run anew in another --output_dir"
        )
    return states, done, damaged


def _finite(weights: Any) -> bool:
    return all(np.isfinite(np.asarray(w)).all() for w in tf.nest.flatten(weights))


def _diverged(symptom: str) -> TrainingError:
    return TrainingError(
        f"{symptom}: training diverged; a smaller learning rate may help (of --hparam; the "
        "checkpoints are of earlier rounds)"
    )


@contextlib.contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Delays the first interrupt until the block ends; a second one takes effect at once.

    While the event loop of TFF's release managers opens or closes, an interrupt can become another
    error, after which nothing would be saved. The block should be short.
    """
    delayed: list[int] = []

    def delay(number: int, frame: Any) -> None:
        if delayed:
            raise KeyboardInterrupt
        delayed.append(number)

    raising = signal.default_int_handler
    # Only the main thread may set handlers.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = [n for n in _INTERRUPTS if is_main and signal.getsignal(n) is raising]
    try:
        for number in numbers:
            signal.signal(number, delay)
        yield
    finally:
        for number in numbers:
            signal.signal(number, raising)
    if delayed:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _writing(path: pathlib.Path, saved: int) -> Iterator[None]:
    """Turns a writing error into a `TrainingError` of one line, which tells how to resume."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        kept = f"continues after round {saved}" if saved else "starts anew"
        raise TrainingError(
            f"{path} cannot be written: {reason}. Nothing that was saved is lost: --resume {kept}"
        ) from error


def _release(
    manager: tff.program.ReleaseManager[Any, int], metrics: dict[str, float], round_number: int
) -> None:
    """Writes the metrics of a round; in a thread if this one runs an event loop, as a notebook's.

    Otherwise in this thread, in which interrupts are raised.
    """
    releasing = manager.release(metrics, round_number)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(releasing)
        return
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, releasing).result()
