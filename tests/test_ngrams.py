"""Kneser–Ney against its definition, n-gram by n-gram, in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spellonce.mixture import neighbour_vectors
from spellonce.ngrams import Ngrams, count

V = 5


def discounts(counts: Sequence[int]) -> list[float]:
    n = [sum(c == k for c in counts) for k in range(5)]
    if n[1] == 0:
        return [0, 0.5, 0.5, 0.5]
    y = n[1] / (n[1] + 2 * n[2])
    raw = [k - ((k + 1) * y * n[k + 1] / n[k] if n[k] else 0.0) for k in (1, 2, 3)]
    return [0.0, *(min(max(d, 0.1), k - 0.1) for k, d in enumerate(raw, 1))]


class Plain:
    """p(w | history) straight from the definition."""

    def __init__(self, text: list[int], order: int) -> None:
        self.order = order
        raw = {
            n: Counter(
                tuple(text[i : i + n])
                for i in range(len(text) - n + 1)
                if -1 not in text[i : i + n]
            )
            for n in range(1, order + 1)
        }
        self.text, self.raw = text, raw
        self.count()
        self.taken: dict[int, list[float]] = {}
        for n in range(1, order + 1):
            seen = [self.counts[n][gram] for gram in raw[n]]
            seen += [0] * (V - len(seen)) if n == 1 else []
            self.taken[n] = discounts(seen)

    def count(self, without: int | None = None) -> None:
        """`without`: the place of a word whose n-grams are taken away."""
        text, raw = self.text, {n: counts.copy() for n, counts in self.raw.items()}
        for n in raw if without is not None else ():
            gram = tuple(text[max(0, without - n + 1) : without + 1])
            if len(gram) == n and -1 not in gram:
                raw[n][gram] -= 1
        self.counts = {self.order: raw[self.order]}
        for n in range(1, self.order):
            self.counts[n] = Counter(gram[1:] for gram, c in raw[n + 1].items() if c)
            for i in range(len(text) - n + 1):  # nothing stands before it
                gram = tuple(text[i : i + n])
                if -1 not in gram and (i == 0 or text[i - 1] == -1) and i + n - 1 != without:
                    self.counts[n][gram] += 1

    def p(self, word: int, history: tuple[int, ...]) -> float:
        n = len(history) + 1
        following = {g[-1]: c for g, c in self.counts[n].items() if g[:-1] == history and c}
        total = sum(following.values())
        lower = 1 / V if n == 1 else self.p(word, history[1:])
        if not total:
            return lower
        taken = self.taken[n]
        rest = sum(taken[min(c, 3)] for c in following.values()) / total
        a = following.get(word, 0)
        return (a - taken[min(a, 3)]) / total + rest * lower


texts = st.lists(st.integers(-1, V - 1), min_size=1, max_size=60).filter(lambda t: max(t) >= 0)


def longest(text: list[int], order: int) -> int:
    """The order that there are n-grams of."""
    parts = " ".join(map(str, text)).split("-1")
    return min(order, max(len(part.split()) for part in parts))


@settings(max_examples=150, deadline=None)
@given(text=texts, history=st.lists(st.integers(0, V - 1), max_size=5), order=st.integers(1, 4))
def test_equals_the_definition(text: list[int], history: list[int], order: int) -> None:
    order = longest(text, order)
    model, plain = count(np.array(text), V, order), Plain(text, order)
    assert model.reach == order - 1
    found, _ = model.distribution(history)
    recent = tuple(history[-model.reach :]) if model.reach else ()
    assert found.sum() == pytest.approx(1, abs=1e-5)
    for word in range(V):
        assert found[word] == pytest.approx(plain.p(word, recent), rel=1e-4, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(text=texts, words=st.lists(st.integers(0, V - 1), min_size=2, max_size=20),
       order=st.integers(1, 4), cut=st.integers(1, 19))  # fmt: skip
def test_many_words_at_once_are_one_after_another(
    text: list[int], words: list[int], order: int, cut: int
) -> None:
    model = count(np.array(text), V, order)
    stream = np.array(words)[:, None]
    before = np.full((model.reach, 1), -1)
    p, found = model.probabilities(stream, before)
    for i, word in enumerate(words):
        expected, kind = model.distribution(words[:i])
        assert p[i, 0] == pytest.approx(expected[word], rel=1e-5)
        assert found[i, 0] == kind < model.n_kinds
    cut = min(cut, len(words) - 1)
    first = model.probabilities(stream[:cut], before)
    history = np.concatenate([before, stream[:cut]])[-model.reach :] if model.reach else before
    second = model.probabilities(stream[cut:], history)
    np.testing.assert_allclose(np.concatenate([first[0], second[0]]), p)
    np.testing.assert_array_equal(np.concatenate([first[1], second[1]]), found)
    both = model.probabilities(np.tile(stream, (1, 2)), np.tile(before, (1, 2)))
    np.testing.assert_array_equal(both[0][:, 1], p[:, 0])


@settings(max_examples=60, deadline=None)
@given(text=texts, order=st.integers(1, 4))
def test_a_word_left_out_is_counted_once_less(text: list[int], order: int) -> None:
    """Its own n-grams are taken from the raw counts, and all else is counted again."""
    order = longest(text, order)
    model, plain = count(np.array(text), V, order), Plain(text, order)
    for i, word in enumerate(text):
        if word < 0:
            continue
        history = tuple(text[max(0, i - order + 1) : i])
        while -1 in history:
            history = history[1:]
        before = np.full((model.reach, 1), -1)
        before[model.reach - len(history) :, 0] = history
        p, kinds = model.probabilities(np.array([[word]]), before, left_out=True)
        plain.count(without=i)
        assert p[0, 0] == pytest.approx(plain.p(word, history), rel=1e-4, abs=1e-7)
        following = [
            n for n in range(1, len(history) + 1)
            if sum(c for g, c in plain.counts[n + 1].items() if g[:-1] == history[-n:])
        ]  # fmt: skip
        assert -(-int(kinds[0, 0]) // 8) == max(following, default=0)


@settings(max_examples=40, deadline=None)
@given(text=texts, order=st.integers(1, 4), seed=st.integers(0, 99))
def test_only_what_was_counted_is_left_out(text: list[int], order: int, seed: int) -> None:
    model = count(np.array(text), V, order)
    words = np.array([[w] for w in text if w >= 0])
    before = np.full((model.reach, 1), -1)
    some = np.random.default_rng(seed).random(words.shape) < 0.5
    found = model.probabilities(words, before, left_out=some)
    for chosen, left_out in ((some, True), (~some, False)):
        p, kinds = model.probabilities(words, before, left_out=left_out)
        np.testing.assert_array_equal(found[0][chosen], p[chosen])
        np.testing.assert_array_equal(found[1][chosen], kinds[chosen])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_what_is_given_is_never_predicted(order: int) -> None:
    """Words between 0 and 0, of which the first is given: it counts as a context alone."""
    words = [[1, 2], [1], [3, 2, 2], [2]]
    text = np.array([x for word in words for x in (-1, 0, *word, 0)])
    given = np.concatenate([[False], (text == 0)[1:] & (text == -1)[:-1]])
    model = count(text, V, order, given)
    plain = count(text, V, order)
    assert model.distribution([0, 1])[0].sum() == pytest.approx(1, abs=1e-5)
    before, without = (m.orders[0].counts.astype(int) for m in (plain, model))
    assert (before - without).tolist() == [len(words), 0, 0, 0, 0]
    if order > 1:
        for shorter, longer in zip(plain.orders[1:], model.orders[1:], strict=True):
            np.testing.assert_array_equal(shorter.counts, longer.counts)


def test_it_survives_as_arrays_and_learns() -> None:
    rng = np.random.default_rng(0)
    text = np.cumsum(rng.integers(0, 2, 5000)) % 50
    model = count(text, 50, 3)
    arrays = model.arrays()
    again = Ngrams.of_arrays(arrays)
    for one, other in zip(model.orders, again.orders, strict=True):
        for field in fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    for name in arrays:
        with pytest.raises(ValueError, match=r"n-grams|numbers"):
            Ngrams.of_arrays({**arrays, name: np.append(arrays[name], 1)})
        with pytest.raises(ValueError, match=r"n-grams|numbers"):
            Ngrams.of_arrays({k: v for k, v in arrays.items() if k != name} | {"x": arrays[name]})
    with pytest.raises(ValueError, match="no n-grams"):
        Ngrams.of_arrays({})
    p, _ = model.probabilities(text[:1000, None], np.full((2, 1), -1))
    bits = -np.log2(p[2:]).mean()
    assert 0.9 < bits < 1.1 < math.log2(50), "two continuations for each word"


@pytest.mark.parametrize("width", [3, 8, 12])
def test_first_embeddings_are_singular_vectors_of_mutual_information(width: int) -> None:
    rng = np.random.default_rng(5)
    n = 9
    model = count(rng.integers(0, n, 400), n, order=2)
    pairs = np.zeros((n, n))
    bigrams = model.orders[1]
    pairs[bigrams.contexts(), bigrams.words] = bigrams.counts
    chance = pairs.sum(1, keepdims=True) * pairs.sum(0, keepdims=True) / pairs.sum()
    information = np.log(np.maximum(pairs, 1e-300) / chance).clip(min=0)
    u, s, _ = np.linalg.svd(np.concatenate([information.T, information], 1), full_matrices=False)
    expected = (u * np.sqrt(s))[:, :width]
    vectors = neighbour_vectors(model, width, torch.Generator().manual_seed(0)).double().numpy()
    assert vectors.shape == (n, width)
    scale = np.linalg.norm(vectors) / np.linalg.norm(expected)
    np.testing.assert_allclose(vectors @ vectors.T, scale**2 * expected @ expected.T, atol=1e-6)
    assert vectors.std() == pytest.approx(0.1 / 3**0.5, rel=0.03)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.integers(1, 5),
    st.lists(st.lists(st.integers(-1, 5), max_size=7), min_size=1, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_many_distributions_are_those_of_each(
    text: list[int], order: int, histories: list[list[int]]
) -> None:
    model = count(np.array(text), 6, order)
    before = np.full((model.reach, len(histories)), -1)
    for i, history in enumerate(histories):
        last = history[len(history) - model.reach :] if model.reach <= len(history) else history
        if last and model.reach:
            before[model.reach - len(last) :, i] = last
    p, kinds = model.distributions(before)
    for i in range(len(histories)):
        alone, kind = model.distribution(before[:, i].tolist())
        np.testing.assert_allclose(p[i], alone, rtol=1e-12)
        assert kinds[i] == kind
