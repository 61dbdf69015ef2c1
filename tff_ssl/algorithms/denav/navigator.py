"""DeNAV's training navigator, which chooses the client that trains next (section 5, Algorithm 1).

"DeNAV: Decentralized Self-Supervised Learning with a Training Navigator". The client that holds a
model reads the model's state log and asks clients, its neighbours first, for their number of
examples and their neighbours. It knows nothing else: `choose_next` gets the log and a function that
carries a question along a path of links, but no network.

Choices where the paper is silent or contradicts itself:

- The maximum of Eq. 3 is over the clients that are compared, as printed. The sentence after it
  takes it over all clients, whose volumes no client in the field knows. The minimum of Eq. 4 is
  over the compared clients that have trained the model; the others have no time.
- In Eq. 5, s is the step that has just ended, so that the client that holds the model has
  alpha = 0.
- P_{m,d+1} also contains clients that were checked before, as printed in Algorithm 1 (appendix A.1
  describes it as the clients that are d + 1 hops away). The search ends when it contains no others.
- Line 32 as printed chooses among P_{m,d-1} even if P_{m,d} has a single best client. This ignores
  the result of the search, and after one hop the choice among the tied candidates is random, which
  section 5.2 wants to avoid. `tie_break="search"` takes the client of P_{m,d-1} that leads to the
  single best client; `tie_break="printed"` takes any client of P_{m,d-1}.
- Line 33 takes the shortest path; section 5.2, like this module, goes back along the path of the
  search. The two differ if a client that the search reached is also linked to m directly: going
  back always ends at one of the tied candidates.
- In Table 4's ablations, the factor U^d becomes 1, or the summand alpha or U^c is omitted. A random
  route takes any candidate, including the holder.
- The paper does not give H in its experiments; it is 10 here.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import networkx as nx
import numpy as np

from tff_ssl.algorithms.denav.state_log import NEVER, StateLog
from tff_ssl.bounds import Bounded, bounded, one_of
from tff_ssl.decentralized import topology

OURS = "Our formula"
# Row of Table 4 -> hyperparameters of its route.
FORMULAS: Mapping[str, Mapping[str, str | bool]] = {
    "Random selection": {"route": "random"},
    "Formula w/o data volume": {"use_volume": False},
    "Formula w/o computing resources": {"use_time": False},
    "Formula w/o selection history": {"use_history": False},
    OURS: {},
}

_LOWEST_SCORE = 1.0  # Score of a client that has been selected Z times (Eq. 6).
_SAME = 1e-12  # Scores that differ by less, through rounding, count as equal.
_BYTES_PER_NUMBER = 8

Path = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class RouteHyperparameters(Bounded):
    """Hyperparameters of a route, among them the ablations of Table 4.

    Attributes:
      selection_limit: Number Z of selections after which a client has the lowest score; should be
        above S / number of clients, see `papers_limit`.
      computing_ranks: Highest rank H of computing resources.
      route: Rule for the next client, `score` or `random` (any candidate).
      use_volume: Whether the score has the factor U^d.
      use_time: Whether the score has the term U^c.
      use_history: Whether the score has the term alpha.
      tie_break: Rule of line 32, `search` or `printed`; see the module.
    """

    selection_limit: int = bounded(3, at_least=1)
    computing_ranks: int = bounded(10, at_least=1)
    route: str = one_of("score", ("score", "random"))
    use_volume: bool = True
    use_time: bool = True
    use_history: bool = True
    tie_break: str = one_of("search", ("search", "printed"))


@dataclasses.dataclass(frozen=True)
class NavigatorHyperparameters(RouteHyperparameters):
    """All hyperparameters of the navigator; those of a route are inherited.

    Attributes:
      steps: Number S of pre-training steps of a model; 200 in the paper's Table 6.
    """

    steps: int = bounded(200, at_least=1)


class Answer(NamedTuple):
    """A client's answer to a question: the number n of its examples, and its neighbours."""

    volume: int
    neighbours: tuple[int, ...]


# Path of linked clients, from the one that asks to the one that is asked -> the latter's answer;
# None if a client on the path has left or a link has been cut.
Ask = Callable[[Path], Answer | None]


class Choice(NamedTuple):
    """The navigator's choice."""

    client: int  #: Client p_m that trains next; may be the client that holds the model.
    hops: int  #: Distance in hops of the clients whose scores decided; 1 without a tie.
    messages: int  #: Number of questions and answers, each counted once for each link it crossed.
    message_bytes: int  #: Bytes of these messages, at 64 bits a number.


def asking(graph: nx.Graph, volumes: Mapping[int, int]) -> Ask:
    """The `Ask` of a simulated network, which carries questions over existing links only."""

    def ask(path: Path) -> Answer | None:
        linked = all(graph.has_edge(a, b) for a, b in itertools.pairwise(path))
        if path[-1] not in graph or not linked:
            return None
        return Answer(volumes[path[-1]], topology.neighbours(graph, path[-1]))

    return ask


def papers_limit(steps: int, num_clients: int) -> int:
    """The limit Z with the paper's ratio to S / |M|: 1.5 S / |M|, rounded up.

    Table 6 has Z = 3 for S = 200 steps on |M| = 100 clients. This leaves a third of the Z |M|
    allowed selections unused, and the scores decide which.
    """
    return -(-3 * steps // (2 * num_clients))


def selection_scores(
    volumes: Mapping[int, int], log: StateLog, hyperparameters: NavigatorHyperparameters
) -> dict[int, float]:
    """Scores U of Eq. 3 to 6 of each client, from 1 to 3 (the largest volume, never selected).

    Volumes are the numbers of examples n of the compared clients, above 0; the log includes the
    step that has just ended.
    """
    visits = {visit.client: visit for visit in log.visits if visit.client in volumes}
    largest = max(volumes.values())
    shortest = min((visit.time for visit in visits.values()), default=math.nan)
    scores = {}
    for client, volume in volumes.items():
        visit = visits.get(client, NEVER)
        selected = visit.last_step > 0
        u_d = volume / largest  # Eq. 3
        u_c = shortest / visit.time if selected else 1.0  # Eq. 4
        alpha = (log.steps - visit.last_step) / hyperparameters.steps if selected else 1.0  # Eq. 5
        gain = hyperparameters.use_history * alpha + hyperparameters.use_time * u_c
        gain *= u_d if hyperparameters.use_volume else 1.0
        allowed = visit.selections < hyperparameters.selection_limit
        scores[client] = gain + 1 if allowed else _LOWEST_SCORE  # Eq. 6
    return scores


class _Answers:
    """The answers that the holder has received, and their messages; each client is asked once."""

    def __init__(self, holder: int, ask: Ask):
        answer = ask((holder,))
        if answer is None:
            raise ValueError(f"client {holder}, which holds the model, is not in the network")
        self._ask = ask
        self._paths: dict[int, Path] = {holder: (holder,)}  # Paths to all clients that were asked.
        self._answers = {holder: answer}
        self.messages = self.message_bytes = 0

    def of(self, client: int) -> Answer:
        """The answer of a client that has answered."""
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

    def neighbours_of(self, clients: Collection[int]) -> set[int]:
        """Clients that answer and are linked to one of `clients`, which have all answered."""
        neighbours = set()
        for client in sorted(clients):
            for neighbour in self.of(client).neighbours:
                if neighbour not in self._paths:
                    self._question((*self._paths[client], neighbour))
                if neighbour in self._answers:
                    neighbours.add(neighbour)
        return neighbours


def _best(
    clients: Collection[int],
    answers: _Answers,
    log: StateLog,
    hyperparameters: NavigatorHyperparameters,
) -> tuple[set[int], float]:
    """The clients with the highest score, and this score."""
    volumes = {client: answers.of(client).volume for client in clients}
    scores = selection_scores(volumes, log, hyperparameters)
    highest = max(scores.values())
    return {client for client, score in scores.items() if score >= highest - _SAME}, highest


def _search(
    tied: set[int],
    candidates: set[int],
    answers: _Answers,
    log: StateLog,
    hyperparameters: NavigatorHyperparameters,
) -> list[set[int]]:
    """Lines 11 to 31: the best clients of P_{m,2}, P_{m,3}, ..., until one is best alone.

    The last set has several clients if no client was left to check, or the next set has only lowest
    scores.
    """
    levels = []
    checked, frontier = set(candidates), tied
    while len(frontier) > 1:
        reached = answers.neighbours_of(frontier)  # Lines 13 to 17, checked ones included
        if reached <= checked:
            break
        checked |= reached
        frontier, highest = _best(reached, answers, log, hyperparameters)
        if highest <= _LOWEST_SCORE:
            break
        levels.append(frontier)
    return levels


def _any(clients: Collection[int], rng: np.random.Generator) -> int:
    """A random client, independent of the order of the clients."""
    return int(rng.choice(sorted(clients)))


def _backtrack(levels: list[set[int]], answers: _Answers, rng: np.random.Generator) -> int:
    """The candidate that led to a client of the last level, drawn as in line 32."""
    client = _any(levels[-1], rng)
    for level in levels[-2::-1]:
        client = _any({k for k in level if client in answers.of(k).neighbours}, rng)
    return client


def choose_next(
    holder: int,
    log: StateLog,
    ask: Ask,
    hyperparameters: NavigatorHyperparameters,
    rng: np.random.Generator,
) -> Choice:
    """Algorithm 1 for one model.

    Args:
      holder: Client m that has just trained the model.
      log: State log of the model, updated after that training.
      ask: Function that carries questions; clients that do not answer are no candidates.
      hyperparameters: Hyperparameters of the navigator.
      rng: Generator that breaks the remaining ties.

    Raises:
      ValueError: If the holder itself does not answer, because it has left the network.
    """
    answers = _Answers(holder, ask)
    candidates = answers.neighbours_of([holder]) | {holder}  # Line 3
    levels = [candidates]
    if hyperparameters.route == "score":
        best, _ = _best(candidates, answers, log, hyperparameters)  # Lines 4 to 10
        levels = [best, *_search(best, candidates, answers, log, hyperparameters)]
    printed = hyperparameters.tie_break == "printed" and len(levels) > 1 and len(levels[-1]) == 1
    client = _backtrack(levels[:-1] if printed else levels, answers, rng)
    return Choice(client, len(levels), answers.messages, answers.message_bytes)
