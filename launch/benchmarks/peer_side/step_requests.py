"""How a peer's program takes requests from `launch.benchmark`, and replies to them.

Standard input: a line of settings as JSON (see `launch.benchmarks.peer_settings`), then a line for
each requested step; the program ends with the input. Standard output, lines of JSON: facts after
the first step, then {"seconds": ...} after each requested step.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


class Requests:
    """The requests; reads the settings, and sends what else is printed to standard error.

    Attributes:
      text: The settings as JSON.
      settings: The settings.
    """

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.text = sys.stdin.readline().strip()
        self.settings = json.loads(self.text)
        self._pending = threading.Semaphore(0)
        self._start = 0.0

    def listen(
        self, on_request: Callable[[], Any] = lambda: None, at_end: Callable[[], Any] = lambda: None
    ) -> None:
        """Takes requests in a thread, which ends the process with the input, even during a step."""

        def take() -> None:
            for _ in sys.stdin:
                on_request()
                self._pending.release()
            at_end()
            os._exit(0)  # A plain exit would wait for the framework's threads.

        threading.Thread(target=take, daemon=True).start()

    def reply(self, facts: dict[str, Any] | None = None) -> None:
        """Replies at the end of a step, and waits for the next request.

        Args:
          facts: The reply; None for the seconds since the request.
        """
        reply = facts or {"seconds": time.monotonic() - self._start}
        print(json.dumps(reply), file=self._replies, flush=True)
        self._pending.acquire()
        self._start = time.monotonic()
