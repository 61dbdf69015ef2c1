"""DeNAV's training navigator: which client trains the model next (section 5, Algorithm 1).

"DeNAV: Decentralized Self-Supervised Learning with a Training Navigator". The client that holds a
model reads the model's state log and asks clients, its neighbours first, for their number of
examples and their neighbours. It knows nothing else: `choose_next` gets the log and a function
that carries a question along a path of links, and no network.

Choices where the paper is silent or contradicts itself:

- The maximum of Eq. 3 is over the clients that are compared (as printed), not over all clients (as
  the sentence after it says), which nobody in the field knows. The minimum of Eq. 4 is over those
  of them that have trained the model: of the others there is no time.
- s of Eq. 5 is the step that has just ended, so that the client that holds the model has alpha = 0.
- P_{m,d+1} has clients that were checked before, as printed in Algorithm 1 (appendix A.1 calls it
  the clients that are d + 1 hops away); the search ends when there are no others in it.
- Line 32. As printed, the choice is among P_{m,d-1} also when P_{m,d} has a
  single best client; what the search found is then not used, and after one hop the choice is random
  among the tied candidates, which section 5.2 wants to avoid. `tie_break="search"` takes that
  client of P_{m,d-1} that leads to the single best one; "printed" takes any.
- Line 33 takes the shortest path, section 5.2 goes back the way of the search, and so does this.
  They differ where a client that was found is also linked to m directly: going back always ends at
  one of the tied candidates.
- Table 4's formulas without a term: the factor U^d is 1, or the summand alpha or U^c is left out. A
  random route takes any candidate, the holder too.
- The paper does not say what H is in its experiments; 10 here.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import networkx as nx
import numpy as np

from tff_ssl.algorithms.denav.state_log import NEVER, StateLog
from tff_ssl.decentralized import topology

ROUTES = ("score", "random")
TIE_BREAKS = ("search", "printed")

_LOWEST_SCORE = 1.0  # Of a client that has been selected Z times (Eq. 6).
_SAME = 1e-12  # Scores that differ by less are equal: that is rounding.
_BYTES_PER_NUMBER = 8

Path = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class RouteHyperparameters:
    """How the navigator chooses: the paper's symbols, and the ablations of Table 4.

    Attributes:
      selection_limit: Z, how often a model can select a client at a better score than the lowest.
        Should be at least S / number of clients: see `smallest_limit`.
      computing_ranks: H, the highest rank of computing resources.
      route: `score`, or `random`: any candidate.
      use_volume: Whether the score has the factor U^d.
      use_time: Whether it has the term U^c.
      use_history: Whether it has the term alpha.
      tie_break: `search` or `printed`, see above.
    """

    selection_limit: int = 3
    computing_ranks: int = 10
    route: str = "score"
    use_volume: bool = True
    use_time: bool = True
    use_history: bool = True
    tie_break: str = "search"

    def __post_init__(self):
        for name in ("selection_limit", "computing_ranks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.route not in ROUTES:
            raise ValueError(f"route must be one of {', '.join(ROUTES)}; got {self.route!r}")
        if self.tie_break not in TIE_BREAKS:
            raise ValueError(
                f"tie_break must be one of {', '.join(TIE_BREAKS)}; got {self.tie_break!r}"
            )


@dataclasses.dataclass(frozen=True)
class NavigatorHyperparameters(RouteHyperparameters):
    """What the navigator is given; others are inherited.

    Attributes:
      steps: S, pre-training steps of a model; 200 in the paper's Table 6.
    """

    steps: int = 200

    def __post_init__(self):
        super().__post_init__()
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}")


class Answer(NamedTuple):
    """What a client says when it is asked.

    Attributes:
      volume: n, its number of examples.
      neighbours: The clients that it is linked to.
    """

    volume: int
    neighbours: tuple[int, ...]


# A path of linked clients, from who asks to who is asked -> the answer of the last one. None where
# it does not come: a client on the path has left, or a link has been cut.
Ask = Callable[[Path], Answer | None]


class Choice(NamedTuple):
    """Where the model goes next.

    Attributes:
      client: p_m; may be the client that holds the model.
      hops: How many hops away the clients were that told the candidates apart: 1 without a tie.
      messages: Questions and answers, counted once for each link that they crossed.
      message_bytes: Their bytes, at 64 bits a number.
    """

    client: int
    hops: int
    messages: int
    message_bytes: int


def asking(graph: nx.Graph, volumes: Mapping[int, int]) -> Ask:
    """Questions on a simulated network, which carries them over existing links only.

    Args:
      graph: The network, as it is now.
      volumes: n of each of its clients.
    """

    def ask(path: Path) -> Answer | None:
        linked = all(graph.has_edge(a, b) for a, b in itertools.pairwise(path))
        if path[-1] not in graph or not linked:
            return None
        return Answer(volumes[path[-1]], topology.neighbours(graph, path[-1]))

    return ask


def smallest_limit(steps: int, num_clients: int) -> int:
    """The smallest Z that Eq. 6 allows: S / |M|, rounded up."""
    return -(-steps // num_clients)


def selection_scores(
    volumes: Mapping[int, int], log: StateLog, hyperparameters: NavigatorHyperparameters
) -> dict[int, float]:
    """U of Eq. 3 to 6.

    Args:
      volumes: n of the clients to compare, all above 0.
      log: The model's, after the step that has just ended.
      hyperparameters: S, Z and the terms.

    Returns:
      Client -> score, at least 1; at most 3 (never selected, largest volume).
    """
    visits = {known.client: known for known in log.visits if known.client in volumes}
    largest = max(volumes.values())
    shortest = min((known.time for known in visits.values()), default=math.nan)
    scores = {}
    for client, volume in volumes.items():
        known = visits.get(client, NEVER)
        selected = known.last_step > 0
        u_d = volume / largest  # Eq. 3
        u_c = shortest / known.time if selected else 1.0  # Eq. 4
        alpha = (log.steps - known.last_step) / hyperparameters.steps if selected else 1.0  # Eq. 5
        gain = hyperparameters.use_history * alpha + hyperparameters.use_time * u_c
        gain *= u_d if hyperparameters.use_volume else 1.0
        allowed = known.selections < hyperparameters.selection_limit
        scores[client] = gain + 1 if allowed else _LOWEST_SCORE  # Eq. 6
    return scores


def choose_next(
    holder: int,
    log: StateLog,
    ask: Ask,
    hyperparameters: NavigatorHyperparameters,
    rng: np.random.Generator,
) -> Choice:
    """Algorithm 1 for one model.

    Args:
      holder: m, the client that has just trained the model.
      log: The model's state log, updated after that training.
      ask: Carries questions; clients that do not answer are no candidates.
      hyperparameters: See there.
      rng: Breaks the ties that are left.

    Raises:
      ValueError: The holder itself does not answer: it is not in the network any more.
    """
    known = _Answers(holder, ask)
    candidates = known.neighbours_of([holder]) | {holder}  # Line 3
    levels = [candidates]
    if hyperparameters.route == "score":
        best, _ = _best(candidates, known, log, hyperparameters)  # Lines 4 to 10
        levels = [best]
        if len(best) > 1:
            levels += _search(best, candidates, known, log, hyperparameters)
    if len(levels) > 1 and hyperparameters.tie_break == "printed" and len(levels[-1]) == 1:
        start = len(levels) - 2
    else:
        start = len(levels) - 1
    client = _backtrack(levels[: start + 1], known, rng)
    return Choice(client, len(levels), known.messages, known.message_bytes)


class _Answers:
    """What the holder has been told so far; asks each client once."""

    def __init__(self, holder: int, ask: Ask):
        own = ask((holder,))
        if own is None:
            raise ValueError(f"client {holder}, which holds the model, is not in the network")
        self._ask = ask
        self._paths: dict[int, Path] = {holder: (holder,)}  # Of all that have been asked.
        self._answers = {holder: own}
        self.messages = 0
        self.message_bytes = 0

    def neighbours_of(self, clients: Collection[int]) -> set[int]:
        """Clients that are linked to one of `clients`, which have answered, and answer too."""
        found = set()
        for client in sorted(clients):
            for neighbour in self.of(client).neighbours:
                if neighbour not in self._paths:
                    self._question((*self._paths[client], neighbour))
                if neighbour in self._answers:
                    found.add(neighbour)
        return found

    def of(self, client: int) -> Answer:
        return self._answers[client]

    def _question(self, path: Path) -> None:
        answer = self._ask(path)
        self._paths[path[-1]] = path
        links = len(path) - 1
        self.messages += links
        self.message_bytes += links * len(path) * _BYTES_PER_NUMBER
        if answer is not None:
            self._answers[path[-1]] = answer
            self.messages += links
            self.message_bytes += links * (1 + len(answer.neighbours)) * _BYTES_PER_NUMBER


def _best(
    clients: Collection[int],
    known: _Answers,
    log: StateLog,
    hyperparameters: NavigatorHyperparameters,
) -> tuple[set[int], float]:
    """Those of the clients that share the highest score, and that score."""
    volumes = {client: known.of(client).volume for client in clients}
    scores = selection_scores(volumes, log, hyperparameters)
    highest = max(scores.values())
    return {client for client, score in scores.items() if score >= highest - _SAME}, highest


def _search(
    tied: set[int],
    candidates: set[int],
    known: _Answers,
    log: StateLog,
    hyperparameters: NavigatorHyperparameters,
) -> list[set[int]]:
    """Lines 11 to 31: the best clients of P_{m,2}, P_{m,3}, ..., as far as they tell clients apart.

    The last set has one client where the tie was broken, several where the search gave up: no
    unchecked client was left, or all scores of the next set were the lowest.
    """
    levels = []
    checked, frontier = set(candidates), tied
    while len(frontier) > 1:
        reached = known.neighbours_of(frontier)  # Lines 13 to 17, checked ones included
        if reached <= checked:
            break
        checked |= reached
        frontier, highest = _best(reached, known, log, hyperparameters)
        if highest <= _LOWEST_SCORE:
            break
        levels.append(frontier)
    return levels


def _backtrack(levels: list[set[int]], known: _Answers, rng: np.random.Generator) -> int:
    """Line 32, a client of the last level, and back from it to the candidate that led there."""
    client = _any(levels[-1], rng)
    for level in levels[-2::-1]:
        client = _any({k for k in level if client in known.of(k).neighbours}, rng)
    return client


def _any(clients: Collection[int], rng: np.random.Generator) -> int:
    """One of them at random, whatever their order."""
    return int(rng.choice(sorted(clients)))
