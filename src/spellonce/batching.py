"""Type ids → training windows; lexemes → batches for the lexicon factor.

Everything random here is a function of a seed and a position, so a cursor is two integers and a
run that is resumed sees exactly what an uninterrupted one would have seen.

No torch here.

    T window, B rails
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spellonce.errors import ConfigError
from spellonce.lexicon import EOS_ID, N_SPECIAL, UNK_ID, Lexicon, Spellings


@dataclass(frozen=True)
class WindowConfig:
    """How the training text is cut. The defaults are the paper's."""

    rails: int = 40
    """Parallel strings that the text is cut into."""
    window: int = 70
    """Mean length of a window of back-propagation through time."""
    window_spread: float = 5.0
    """Standard deviation of that length."""
    short_windows: float = 0.05
    """Share of windows that are half as long."""
    window_max: int = 80
    """No window is longer."""

    def __post_init__(self) -> None:
        for name in ("rails", "window", "window_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.window > self.window_max:
            raise ConfigError(
                f"window is {self.window}, and no window is longer than {self.window_max}: "
                "set window_max too"
            )
        if not 0 <= self.short_windows <= 1:
            raise ConfigError(f"short_windows must be between 0 and 1, got {self.short_windows}")
        if self.window_spread < 0:
            raise ConfigError(f"window_spread must not be negative, got {self.window_spread}")


@dataclass(frozen=True)
class Window:
    """What one training step reads."""

    inputs: NDArray[np.int64]
    """Lexeme ids w_{i-1}.  (T, B)"""
    targets: NDArray[np.int64]
    """Lexeme ids w_i.  (T, B)"""
    novel: NDArray[np.int64]
    """Places t·B + b of the targets that are UNK and have a spelling."""
    novel_types: NDArray[np.int64]
    """The type ids of those."""
    rare: NDArray[np.int64]
    """Places of the targets that are lexemes and are to be spelled all the same."""
    read: NDArray[np.int64]
    """Places of the targets that are lexemes and are going to be read by their spelling."""
    in_text: NDArray[np.int64]
    """Where in the whole text the targets are.  (T, B)"""

    @property
    def n_tokens(self) -> int:
        """T·B"""
        return int(self.targets.size)

    def part(self, rails: slice) -> Window:
        """The same with only some of the rails."""
        n_rails = self.targets.shape[1]
        first, stop, _ = rails.indices(n_rails)

        def here(places: NDArray[np.int64]) -> NDArray[np.int64]:
            rail = places % n_rails
            return np.flatnonzero((rail >= first) & (rail < stop))

        def moved(places: NDArray[np.int64]) -> NDArray[np.int64]:
            times, rail = np.divmod(places[here(places)], n_rails)
            found: NDArray[np.int64] = times * (stop - first) + rail - first
            return found

        return Window(
            inputs=np.ascontiguousarray(self.inputs[:, rails]),
            targets=np.ascontiguousarray(self.targets[:, rails]),
            novel=moved(self.novel),
            novel_types=self.novel_types[here(self.novel)],
            rare=moved(self.rare),
            read=moved(self.read),
            in_text=self.in_text[:, rails],
        )


class Rails:
    """The training text as B parallel strings of equal length.

    Every token is on some rail. Where the text does not divide evenly, neighbouring rails share
    one token.
    """

    def __init__(
        self,
        type_ids: NDArray[np.int32],
        n_lexemes: int,
        config: WindowConfig,
        seed: int,
        rare: NDArray[np.float64] | None = None,
        read: NDArray[np.float64] | None = None,
    ) -> None:
        """Of each lexeme: `rare`, the share of its occurrences that are to be spelled; `read`, the
        share of those that are to be read by their spelling."""
        n = len(type_ids)
        self._rare, self._read = rare, read
        n_rails = max(1, min(config.rails, n // min(config.window, 10)))
        self._ids, self._n_lexemes, self._config, self._seed = type_ids, n_lexemes, config, seed
        self.n_rails = n_rails
        self.length = -(-n // n_rails)
        self._starts = np.minimum(np.arange(n_rails) * n // n_rails, n - self.length)
        self._epoch = -1
        self._cuts: list[int] = []

    def cuts(self, epoch: int) -> list[int]:
        """Where the windows of an epoch begin, and the end: [0, …, length]."""
        if epoch != self._epoch:
            self._cuts = window_cuts(self.length, self._config, [self._seed, epoch])
            self._epoch = epoch
        return self._cuts

    def window(self, epoch: int, index: int) -> Window:
        """The index-th window of an epoch."""
        start, stop = self.cuts(epoch)[index : index + 2]
        place = self._starts + np.arange(start, stop)[:, None]  # (T, B)
        types = self._ids[place].astype(np.int64)
        before = np.where(place > 0, self._ids[place - 1], EOS_ID)
        flat = types.ravel()
        novel = np.flatnonzero(flat >= self._n_lexemes)
        rare, read = (
            novel[:0] if share is None else self._chosen(flat, share, [purpose, epoch, index])
            for purpose, share in ((3, self._rare), (4, self._read))
        )
        return Window(
            inputs=np.where(before < self._n_lexemes, before, UNK_ID).astype(np.int64),
            targets=np.where(types < self._n_lexemes, types, UNK_ID),
            novel=novel,
            novel_types=flat[novel],
            rare=rare,
            read=read,
            in_text=place,
        )

    def _chosen(
        self, types: NDArray[np.int64], share: NDArray[np.float64], seed: list[int]
    ) -> NDArray[np.int64]:
        """Places of lexemes, of each about the share that is wanted."""
        wanted = share[np.where(types < self._n_lexemes, types, UNK_ID)]
        rng = np.random.default_rng([self._seed, *seed])
        return np.flatnonzero(rng.random(len(wanted)) < wanted)


def window_cuts(length: int, config: WindowConfig, seed: list[int]) -> list[int]:
    """Random window borders over a rail; the last window is what is left.

    >>> window_cuts(10, WindowConfig(window=4, window_spread=0, short_windows=0), [0])
    [0, 4, 8, 10]
    """
    rng = np.random.default_rng(seed)
    cuts = [0]
    while cuts[-1] < length:
        mean = config.window / 2 if rng.random() < config.short_windows else config.window
        size = round(rng.normal(mean, config.window_spread))
        shortest = min(5, config.window)
        cuts.append(min(cuts[-1] + min(max(size, shortest), config.window_max), length))
    return cuts


class LexiconSampler:
    """Walks through all lexemes that may be spelled, in random order, pass after pass.

    A pass is cut into `n_batches` parts of nearly equal size. A batch stands for the whole lexicon
    when its sum is multiplied by `n_batches`: the mean over a pass is then exactly the full sum.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        batch: int,
        max_length: int,
        seed: int,
        *,
        hapax_only: bool = False,
        unspelled: float = 0.0,
    ) -> None:
        lengths = lexicon.spellings().lengths()[: lexicon.n_lexemes]
        spelled = ~lexicon.unspelled(unspelled)
        spelled[:N_SPECIAL] = False
        if hapax_only:
            spelled &= lexicon.counts[: lexicon.n_lexemes] == 1
        self.eligible = np.flatnonzero(spelled & (lengths <= max_length))
        self.n_batches = -(-len(self.eligible) // batch)
        self._seed = seed
        self._pass = -1
        self._parts: list[NDArray[np.int64]] = []

    def batch(self, number: int) -> NDArray[np.int64]:
        """The lexeme ids of the number-th batch since the beginning."""
        walk, part = divmod(number, self.n_batches)
        if walk != self._pass:
            order = np.random.default_rng([self._seed, 1, walk]).permutation(self.eligible)
            self._parts = np.array_split(order, self.n_batches)
            self._pass = walk
        return self._parts[part]


def training_spellings(lexicon: Lexicon, limit: int) -> Spellings:
    """Spellings of all types, cut after `limit` symbols: no single word can fill the memory."""
    spellings = lexicon.spellings()
    return spellings.take(np.arange(len(spellings)), limit)
