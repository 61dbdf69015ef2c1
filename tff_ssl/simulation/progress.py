"""Progress of a run: a bar on a terminal, otherwise a line every few seconds."""

import math
import sys
import time

import tqdm

_LINE_SECONDS = 10.0  # Seconds between two lines of progress without a terminal.


class _Bar(tqdm.tqdm):
    """A bar whose speed can be measured anew."""

    def reset_speed(self, done: int) -> None:
        """Shows `done` rounds, and measures the speed from now on."""
        self.n = self.last_print_n = self.initial = done
        self.unpause()  # Moves the start by the time since the last printing.
        self.start_t = self.last_print_t
        self.refresh()


class Progress:
    """Progress of a run: a bar on a terminal, otherwise a line every few seconds.

    Speed and remaining time leave out the first round, in which the graphs are traced.
    """

    def __init__(self, done: int, rounds: int):
        self._rounds = rounds
        # Number of rounds from which the speed is measured, and their time; set by the first round.
        self._first, self._start, self._last = -1, 0.0, -math.inf
        self._bar = None
        if sys.stderr.isatty():
            self._bar = _Bar(total=rounds, initial=done, unit="round", dynamic_ncols=True)

    def show(self, done: int, metrics: dict[str, float]) -> None:
        shown = {name: f"{metrics[name]:.4g}" for name in ("loss", "epsilon") if name in metrics}
        now, is_first = time.monotonic(), self._first < 0
        if is_first:
            self._first, self._start = done, now
        if self._bar is not None:
            self._bar.set_postfix(shown, refresh=False)
            if is_first:
                self._bar.reset_speed(done)
            else:
                self._bar.update()
            return
        if now - self._last < _LINE_SECONDS and done < self._rounds:
            return
        self._last = now
        parts = [f"round {done}/{self._rounds}", *map(" ".join, shown.items())]
        if not is_first and now > self._start:
            rate = (done - self._first) / (now - self._start)
            parts += [f"{rate:.2f} rounds/s", f"{(self._rounds - done) / rate:.0f} s left"]
        print("  ".join(parts), flush=True)

    def note(self, text: str) -> None:
        self.close()
        print(text, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
