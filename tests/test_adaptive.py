"""Models that learn while they read: what they say adds up, looks at nothing that comes later, can
be cut into pieces, and without anything to learn with is the static model."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spellonce import bookmarks
from spellonce.adaptive import Adaptation, CacheSettings, Learning, Reader
from spellonce.cache import Component, Memory, n_features
from spellonce.dynamic import DynamicSettings, Weights
from spellonce.errors import RunError
from spellonce.growth import Grown, GrowthSettings
from spellonce.lexicon import Spellings
from spellonce.loading import load
from spellonce.speller import Speller
from spellonce.trie import Trie
from spellonce.tuning import fit_gate, follow, look_up, score, tune_cache, tune_growth
from spellonce.two_level import TwoLevel

from .conftest import call, tune
from .test_systems import HISTORY, make, shorten
from .toy import make_lexicon, strings

TEXT = [*HISTORY, "bb", "ab", "bab", "\n", "aab", "ba", "ab", "\n", "bab", "b", "ba"]
SYSTEMS = ["full", "no-reg", "only-reg", "sep-reg", "1gram", "uncond", "mixed", "mixed-composed",
           "mixed-recall"]  # fmt: skip


def network_of(name: str) -> TwoLevel:
    network = make(name)
    assert isinstance(network, TwoLevel)
    return network


def some_gate(n_components: int, seed: int = 0) -> tuple[tuple[float, ...], ...]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 0.4, (1 + n_components, n_features(n_components) + 1))
    return tuple(map(tuple, rows.tolist()))


def some_scale(network: TwoLevel) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {
        name: 0.1 + torch.rand(p.shape, generator=generator)
        for name, p in network.named_parameters()
    }


WAYS = (Component(0.0), Component(0.5), Component(0.3, after=1), Component(0.0, after=2))
CACHE = CacheSettings(4, WAYS, some_gate(4))
NARROW = CacheSettings(4, (Component(0.3, after=1),), some_gate(1))
GROWTH = GrowthSettings(limit=2, like=0.4, often=0.7, new=0.3)
DYNAMIC = DynamicSettings(segment=5, rate=0.02, decay=0.05)
ADAPTATIONS = {
    "cache": Adaptation(cache=CACHE),
    "growth": Adaptation(growth=GROWTH),
    "both": Adaptation(cache=CACHE, growth=GROWTH),
    "dynamic": Adaptation(dynamic=DYNAMIC),
    "all": Adaptation(CACHE, GROWTH, DYNAMIC, renormalise=True),
    "narrow": Adaptation(NARROW, renormalise=True),
}


def reader_of(network: TwoLevel, adaptation: Adaptation) -> Reader:
    return Reader(network, make_lexicon(), adaptation, some_scale(network))


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_learns_nothing_is_the_static_model(name: str) -> None:
    network, lexicon = network_of(name), make_lexicon()
    lm, spelling = network.score_tokens(lexicon, TEXT)
    for nothing in (
        Adaptation(),
        Adaptation(cache=CacheSettings.fixed(0.0, 1.0)),
        Adaptation(dynamic=replace(DYNAMIC, rate=0.0)),
    ):
        piece = reader_of(network, nothing).read(TEXT)
        np.testing.assert_allclose(piece.lm_nats, lm, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(piece.spell_nats, spelling, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(piece.nats, piece.lm_nats + piece.spell_nats, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in ("full", "mixed-composed") for kind in ADAPTATIONS]
    + [("uncond", "all"), ("only-reg", "all")],
)
@pytest.mark.parametrize("n_read", [0, 7, len(TEXT)])
def test_all_that_may_come_adds_up(name: str, kind: str, n_read: int) -> None:
    """To one if renormalised; else but for what UNK spells of lexemes and remembered words.

    Strings of up to five letters; words are made short, so that there is little beyond.
    """
    network = network_of(name)
    shorten(network)
    adaptation = ADAPTATIONS[kind]
    reader = reader_of(network, adaptation)
    reader.read(TEXT[:n_read])
    kept = reader.state_dict()
    total = unk = 0.0
    for word in ["\n", *strings(5)]:
        again = reader_of(network, adaptation)
        again.restore(kept)
        piece = again.read([word])
        total += math.exp(-float(piece.nats[0]))
        if word == "babab":  # never read: UNK, and then its spelling
            unk = math.exp(-float(piece.lm_nats[0]))
    assert total <= 1 + 1e-5
    beyond = 0.05  # what is longer than five letters
    assert total > 1 - unk * (beyond if adaptation.renormalise else 1)


def test_growth_and_cache_lose_no_more_than_the_words_they_know() -> None:
    """Exactly: 1 − π_0 · p(UNK) · p(new) · Σ p_spell(lexemes, remembered words, longer words)."""
    network = network_of("full")
    shorten(network)
    reader = reader_of(network, ADAPTATIONS["cache"])
    reader.read(TEXT)
    kept = reader.state_dict()
    assert reader.memory is not None
    remembered = reader.memory.novel_words()
    static, adaptive = {}, {}
    for word in ["\n", *strings(5)]:
        again = reader_of(network, ADAPTATIONS["cache"])
        again.restore(kept)
        piece = again.read([word])
        static[word] = math.exp(-float(piece.lm_nats[0] + piece.spell_nats[0]))
        adaptive[word] = math.exp(-float(piece.nats[0]))
    share = adaptive["babab"] / static["babab"]
    lost = 1 - sum(static.values()) + sum(static[word] for word in remembered)
    assert remembered and share < 1
    assert sum(adaptive.values()) == pytest.approx(1 - share * lost, abs=1e-5)


def test_the_cache_against_a_plain_one() -> None:
    """Token by token, straight from the definition."""
    network, lexicon = network_of("full"), make_lexicon()
    window = 6
    tokens = TEXT * 3
    cache = CacheSettings(window, WAYS, some_gate(len(WAYS), seed=3))
    piece = reader_of(network, Adaptation(cache=cache)).read(tokens)
    text = follow(network, lexicon, tokens, n_chars=1)
    h = text.states.double().numpy()
    static = np.exp(-(text.routes.lm + text.routes.spelling))
    gate = np.array(cache.by_features)
    for i, word in enumerate(tokens):
        past = range(max(0, i - window), i)
        raw = {j: float(h[i] @ h[j]) for j in past}
        highest = max(raw.values(), default=0.0)
        features, own = [highest / 10, math.log(len(past) + 1)], []
        for way in WAYS:
            before = tokens[max(0, i - way.after) : i]
            same = [j for j in past if tokens[max(0, j - way.after) : j] == before]
            peak = max((raw[j] for j in same), default=highest)
            scores = {j: math.exp(way.sharpness * (raw[j] - peak)) for j in same}
            total = sum(scores.values())
            novel = sum(s for j, s in scores.items() if text.routes.is_novel[j])
            features += [math.log(max(total, 1)), novel / max(total, 1e-9), (peak - highest) / 10]
            own.append(sum(s for j, s in scores.items() if tokens[j] == word) / total
                       if same else None)  # fmt: skip
        logits = gate @ [*features, 1.0]
        there = [True, *(p is not None for p in own)]
        shares = np.where(there, np.exp(logits - logits.max()), 0.0)
        shares /= shares.sum()
        cached = sum(share * (p or 0.0) for share, p in zip(shares[1:], own, strict=True))
        is_spelled = not (text.routes.is_novel[i] and cached > 0)
        expected = is_spelled * shares[0] * static[i] + cached
        assert piece.nats[i] == pytest.approx(-math.log(expected), rel=1e-4), (i, word)


def test_growth_against_a_plain_one() -> None:
    network, lexicon = network_of("full"), make_lexicon()
    piece = reader_of(network, Adaptation(growth=GROWTH)).read(TEXT)
    text = follow(network, lexicon, TEXT, n_chars=1)
    h = text.states.double().numpy()
    met: dict[str, list[int]] = {}
    for i, word in enumerate(TEXT):
        expected = -text.routes.lm[i]
        if text.routes.is_novel[i]:
            scores = {
                w: math.exp(GROWTH.like * float(h[i] @ h[at].mean(0))) * len(at) ** GROWTH.often
                for w, at in met.items()
            }
            total = sum(scores.values()) + math.exp(GROWTH.new)
            new = math.exp(GROWTH.new - text.routes.spelling[i])
            expected += math.log((scores[word] if word in met else new) / total)
            at = met.pop(word, [])
            if not at and len(met) == GROWTH.limit:
                met.pop(next(iter(met)))  # the one that was not met for longest
            met[word] = [*at, i]
        assert piece.nats[i] == pytest.approx(-expected, rel=1e-5), (i, word)


@pytest.mark.parametrize("kind", ADAPTATIONS)
@pytest.mark.parametrize("name", ["full", "mixed", "mixed-recall"])
@settings(deadline=None, max_examples=8)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=4))
def test_pieces_score_as_the_whole(name: str, kind: str, cuts: list[int]) -> None:
    network, adaptation = network_of(name), ADAPTATIONS[kind]
    whole = reader_of(network, adaptation).read(TEXT)
    reader = reader_of(network, adaptation)
    found = []
    for a, b in itertools.pairwise(sorted({0, *cuts, len(TEXT)})):
        kept = reader.state_dict()
        reader = reader_of(network, adaptation)
        reader.restore(kept)
        found.append(reader.read(TEXT[a:b]).nats)
    np.testing.assert_allclose(np.concatenate(found), whole.nats, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ADAPTATIONS)
def test_what_comes_later_changes_nothing(kind: str) -> None:
    network, adaptation = network_of("full"), ADAPTATIONS[kind]
    whole = reader_of(network, adaptation).read(TEXT)
    for n in range(1, len(TEXT)):
        other = reader_of(network, adaptation).read([*TEXT[:n], "bab", "aab"])
        np.testing.assert_allclose(other.nats[:n], whole.nats[:n], rtol=1e-4, atol=1e-5)


# --- dynamic evaluation ------------------------------------------------------------------------


def test_a_dynamic_step_is_the_rule_of_krause() -> None:
    network = network_of("full")
    scale = some_scale(network)
    weights = Weights(network, DYNAMIC, scale)
    before = weights.state_dict()
    with torch.no_grad():  # somewhere else than the trained weights
        for p in weights.network.parameters():
            p += 0.1
    moved = weights.state_dict()
    loss = sum(p.square().sum() for p in weights.network.parameters())
    assert isinstance(loss, Tensor)
    weights.step(loss)
    mean = float(torch.cat([s.flatten() for s in scale.values()]).mean())
    for name, after in weights.state_dict().items():
        back = (DYNAMIC.decay * scale[name] / mean).clamp_max(1)
        expected = moved[name] + back * (before[name] - moved[name])
        expected -= DYNAMIC.rate * 2 * moved[name] / (scale[name] + DYNAMIC.epsilon * mean)
        torch.testing.assert_close(after, expected)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], msg="the model itself stays")


def test_dynamic_evaluation_learns_what_comes_again() -> None:
    network = network_of("full")
    tokens = ["ab", "bb", "bab", "\n"] * 60
    static = reader_of(network, Adaptation()).read(tokens).nats
    following = Adaptation(dynamic=replace(DYNAMIC, rate=0.1, decay=0.0))
    dynamic = reader_of(network, following).read(tokens).nats
    np.testing.assert_allclose(dynamic[:5], static[:5], rtol=1e-5)
    assert dynamic[-40:].mean() < 0.8 * static[-40:].mean()


# --- the trie ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full", "mixed-composed"])
def test_the_mass_of_words_over_their_prefixes_is_that_of_each_added_up(name: str) -> None:
    network, lexicon = network_of(name), make_lexicon()
    speller = network.novel
    assert isinstance(speller, Speller)
    words = ["ab", "a", "", "aab", "bb", "b", "abab", "◇", "ab"]
    spelled = Spellings.of(lexicon.alphabet, words)
    trie = Trie(spelled[i].tolist() for i in range(len(spelled)))
    assert trie.n_words == len(set(words))
    vectors = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    different = Spellings.of(lexicon.alphabet, sorted(set(words)))
    with torch.no_grad():
        expected = [
            float((-speller.nats(v.expand(len(different), -1), different)).exp().sum())
            for v in vectors
        ]
    np.testing.assert_allclose(trie.mass(speller, vectors).numpy(), expected, rtol=1e-5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spellonce.trie._PAIRS", 3)
        np.testing.assert_allclose(trie.mass(speller, vectors).numpy(), expected, rtol=1e-5)
    assert Trie([]).mass(speller, vectors).tolist() == [0.0] * 5


# --- tuning ------------------------------------------------------------------------------------


def test_a_gate_is_fitted_to_a_text() -> None:
    network, lexicon = network_of("full"), make_lexicon()
    tokens = TEXT * 20
    text = follow(network, lexicon, tokens, n_chars=100)
    plain = CacheSettings(8, WAYS)
    found = look_up(text, lexicon.n_lexemes, plain)
    fitted = fit_gate(text, found, plain)
    other = replace(plain, by_features=some_gate(4))
    bits = [text.bpc(score(text, found, one)) for one in (fitted, other)]
    assert bits[0] < text.static_bpc() and bits[0] < bits[1]
    read = reader_of(network, Adaptation(cache=fitted)).read(tokens)
    assert text.bpc(read.nats) == pytest.approx(bits[0], rel=1e-4)


def test_a_cache_that_does_not_know_all_that_it_remembers_is_fitted() -> None:
    network, lexicon = network_of("full"), make_lexicon()
    text = follow(network, lexicon, TEXT * 10, n_chars=100)
    cache, bpc = tune_cache(text, lexicon.n_lexemes, windows=(8,), components=NARROW.components)
    assert np.isfinite(bpc) and np.isfinite(cache.by_features).all()
    read = reader_of(network, Adaptation(cache=cache)).read(TEXT * 10)
    assert text.bpc(read.nats) == pytest.approx(bpc, rel=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [{"window": math.inf}, {"components": []}, {"components": [{"sharpness": None, "after": 0}]},
     {"components": [{"sharpness": 0.1, "after": 1.5}]}, {"by_features": [[1.0]]},
     {"by_state": [[0.0]]}, {"components": [{"sharpness": -1.0, "after": 0}]}],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    kept = Adaptation(cache=CACHE).to_json()
    kept["cache"] |= wrong
    with pytest.raises(RunError, match=r"damaged|does not fit"):
        Adaptation.from_json(kept)


def test_growth_is_tuned_to_a_text_and_cache_on_top_of_it() -> None:
    network, lexicon = network_of("full"), make_lexicon()
    tokens = TEXT * 5
    text = follow(network, lexicon, tokens, n_chars=100)
    growth, grown = tune_growth(text, limit=5)
    read = reader_of(network, Adaptation(growth=growth)).read(tokens)
    with_growth = grown.bpc(-grown.routes.log_p(np.zeros(len(tokens), dtype=bool)))
    assert text.bpc(read.nats) == pytest.approx(with_growth, rel=1e-5)
    assert with_growth < text.static_bpc()
    cache, bpc = tune_cache(grown, lexicon.n_lexemes, windows=(6,), components=WAYS)
    both = reader_of(network, Adaptation(cache=cache, growth=growth)).read(tokens)
    assert text.bpc(both.nats) == pytest.approx(bpc, rel=1e-4)
    assert bpc < with_growth


# --- bounds ------------------------------------------------------------------------------------


def test_memory_is_bounded() -> None:
    memory = Memory(2, 3, window=10, components=WAYS)
    for i in range(3000):
        memory.read(torch.zeros(1, 2), np.array(memory.numbers([f"w{i}"])))
    assert len(memory.strings) == 10 and len(memory.state_dict()["numbers"]) <= 1022
    assert [memory.word(n) for n in memory.strings.tolist()] == [f"w{i}" for i in range(2990, 3000)]
    assert memory.novel_words() == {f"w{i}" for i in range(2990, 3000)}


def test_growth_is_bounded() -> None:
    grown = Grown(2, limit=3)
    for i in range(10):
        grown.meet(f"w{i % 5}", torch.ones(2))
    assert len(grown.words()) == 3


def test_what_was_tuned_is_for_one_model(tiny_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    tune(run)
    call("eval", run, "--cache").ok()
    kept = json.loads((run / "adaptive.json").read_text())
    (run / "adaptive.json").write_text(json.dumps({**kept, "model": "of another"}))
    call("eval", run, "--cache").refused("adaptive.json is of another model", 1)


def test_a_long_novel_word_is_learned_from_in_part(tiny_run: Path, tmp_path: Path) -> None:
    """All of it is scored, and gradients go through its beginning alone."""
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    tune(run)
    model = load(run)
    text = "The ba ke lo. " + "ba" * 2000 + " " + "the ran " * 40 + "\n"
    largest = 0
    of_bucket = Speller._bucket_nats

    def noted(self: Speller, *arguments: Any) -> torch.Tensor:
        nonlocal largest
        if torch.is_grad_enabled():
            largest = max(largest, len(arguments[1][0]))
        return of_bucket(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Speller, "_bucket_nats", noted)
        found = model.score(text, Learning(dynamic=True))
    assert 0 < largest <= 501
    static = model.score(text)
    word = int(np.argmax(static.n_chars))
    assert found.nats[word] == pytest.approx(static.nats[word], rel=0.05)


def test_line_ends_of_another_system_and_blanks_do_not_hide_articles(
    tiny_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    tune(run)
    model = load(run)
    for blank in ("\n", "\r\n", " \t\n"):
        lines = ["The wug ran.\n", "A wug.\n", blank, "The wug sat.\n", "The wug.\n", blank] * 3
        kept, reset = (
            model.score("".join(lines), Learning(cache=True, reset=reset)).nats.sum()
            for reset in (False, True)
        )
        assert kept < reset - 1, "what was forgotten must be spelled again"


# --- the command line ---------------------------------------------------------------------------


def test_a_run_is_tuned_and_learns_while_it_reads(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    call("eval", run, "--cache").refused(f"not been tuned yet: spellonce tune {run}", 2)
    found = tune(run)
    bpc = {row["what"].partition(" (")[0]: row["bpc"] for row in found["tried"]}
    assert bpc["cache"] < bpc["static"]
    static = json.loads(call("eval", run, "--json").ok())
    assert static["bpc"] == pytest.approx(bpc["static"], rel=1e-5)
    kept = min(bpc["cache"], bpc["cache and growth"])
    for options, figure in ((["--cache"], kept), (["--cache", "--reset"], None),
                            (["--dynamic"], None), (["--cache", "--dynamic"], None)):  # fmt: skip
        result = json.loads(call("eval", run, *options, "--json").ok())
        assert result["static"]["bpc"] == pytest.approx(static["bpc"], rel=1e-5)
        assert result["adaptive"]["cache"] == ("--cache" in options)
        assert result["bpc_lm"] is None and "mode:" in result["signature"]
        if figure is not None:
            assert result["bpc"] == pytest.approx(figure, rel=1e-4)
    assert "static_bpc" in call("eval", run, "--cache").ok()
    text = tmp_path / "t.txt"
    text.write_text("The wug zibbled. The wug ran.\nA wug.\n")
    scored = call("score", "-m", run, "--cache", "--format", "jsonl", text).ok()
    rows = [json.loads(line) for line in scored.splitlines()]
    whole = json.loads(call("eval", run, "--cache", "--text", text, "--json").ok())
    assert sum(row["bits"] for row in rows) == pytest.approx(whole["bits"], rel=1e-9)
    wugs = [row["bits"] for row in rows if row["token"] == "wug"]
    assert wugs[1] < wugs[0]
    other = tmp_path / "other"
    shutil.copytree(run, other)
    compared = json.loads(call("compare", run, other, "--cache", "--json").ok())
    system = compared["systems"][0]
    assert system["bpc"] != system["static"]["bpc"]
    plain = json.loads(call("compare", run, other, "--json").ok())["systems"][0]
    assert system["static"]["bpc"] == pytest.approx(plain["bpc"], rel=1e-5)


# --- bookmarks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ADAPTATIONS)
def test_a_reader_goes_on_from_a_bookmark(kind: str, tmp_path: Path) -> None:
    network, adaptation = network_of("mixed"), ADAPTATIONS[kind]
    whole = reader_of(network, adaptation).read(TEXT).nats
    first = reader_of(network, adaptation)
    first.read(TEXT[:8])
    bookmarks.save(first, tmp_path / "mark")
    again = reader_of(network, adaptation)
    bookmarks.restore(again, tmp_path / "mark")
    np.testing.assert_allclose(again.read(TEXT[8:]).nats, whole[8:], rtol=1e-4, atol=1e-5)


def test_a_bookmark_is_of_one_model_and_whole(tmp_path: Path) -> None:
    network = network_of("full")
    reader = reader_of(network, ADAPTATIONS["both"])
    mark = tmp_path / "mark"
    bookmarks.save(reader, mark)
    with pytest.raises(RunError, match="other settings"):
        bookmarks.restore(reader_of(network, ADAPTATIONS["cache"]), mark)
    with pytest.raises(RunError, match="cannot read"):
        bookmarks.restore(reader, tmp_path / "nothing")
    data = mark.read_bytes()
    other = data.replace(b"before", b"behind")
    assert other != data
    for damaged in (b"", b"no bookmark", data[: len(data) // 2], other):
        mark.write_bytes(damaged)
        with pytest.raises(RunError, match="damaged"):
            bookmarks.restore(reader, mark)
