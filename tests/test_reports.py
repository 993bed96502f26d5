"""Reports of made-up outcomes: figures against a plain recount, statements against the numbers."""

from __future__ import annotations

import csv
import itertools
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
import scipy.stats

from spellonce.errors import ConfigError, DataError
from spellonce.evaluation import BINS
from spellonce.paper import published, reports
from spellonce.paper.markdown import escape
from spellonce.paper.ngram_ranks import count_words, rank_ngrams
from spellonce.paper.outcomes import Place, agreement, differences, entries
from spellonce.significance import holm
from spellonce.text import TextFormat

COMMAND = "spellonce reproduce table1 --out here"
N_ARTICLES = 12
WAVE = [1 + 0.1 * np.sin(3 * i) for i in range(N_ARTICLES)]


def evaluation(bpc: float, lm: float | None, noise: int, signature: str) -> dict[str, Any]:
    """The JSON of `eval`; the noise decides how the bits are shared among the articles."""
    chars = [1000 + 10 * i for i in range(N_ARTICLES)]
    jitter = np.random.default_rng(noise).normal(1, 0.004, N_ARTICLES)
    bits = np.array(chars) * np.array(WAVE) * jitter
    bits *= bpc * sum(chars) / bits.sum()
    articles = [
        {"bits": float(b), "chars": c, "tokens": c // 5} for b, c in zip(bits, chars, strict=True)
    ]
    bins = [
        {"lo": lo, "hi": hi, "tokens": 10 + lo, "chars": 50, "bpc": bpc * times}
        for (lo, hi), times in zip(BINS, (2.5, 1.2, 0.8), strict=True)
    ]
    return {
        "bpc": bpc, "bpc_lm": lm, "bpc_spell": None if lm is None else bpc - lm,
        "bpc_strict": bpc + 0.01, "bpb": bpc, "n_chars": sum(chars), "bins": bins,
        "articles": articles, "signature": signature,
    }  # fmt: skip


def outcome(
    system: str,
    dev: float | None,
    test: float | None = None,
    *,
    seed: int = 0,
    recipe: str | None = None,
    dataset: str = "toy",
    settings: tuple[str, ...] = (),
    data: dict[str, Any] | None = None,
    noise: int = 0,
    tok: str = "spaces",
) -> reports.Outcome:
    recipe = recipe or f"{system}-small"
    name = "-".join([recipe, dataset, *settings, str(seed)])
    lm = None if system.startswith(("pure", "hclm")) else 1.0
    sign = f"spellonce:0|recipe:{recipe}|seed:{seed}|tok:{tok}"
    train = {"steps": 100, "epochs": 1.5, "tokens": 5000, "seconds": 60.0 + seed,
             "tokens_per_second": 80.0, "seconds_in_all": 70.0, "peak_rss_mb": 100.0}  # fmt: skip
    known = {"lexemes": 5000, "train_types": 7000, "train_tokens": 123_456}
    return reports.Outcome(
        name, system, recipe, dataset, seed, settings,
        train if dev is not None else {},
        known | (data or {}) if dev is not None else {},
        {} if dev is None else evaluation(dev, lm, noise, sign),
        {} if test is None else evaluation(test, lm, noise + 1, sign),
    )  # fmt: skip


def some() -> list[reports.Outcome]:
    """Seven of the paper's systems, three seeds of one, one that is not in it, one begun."""
    return [
        outcome("full", 1.60, 1.64), outcome("full", 1.62, 1.65, seed=1, noise=7),
        outcome("full", 1.61, 1.66, seed=2, noise=8), outcome("no-reg", 1.66, 1.70, noise=10),
        outcome("sep-reg", 1.66, 1.69, noise=20), outcome("pure-bpe", 1.50, 1.52, noise=30),
        outcome("1gram", 1.90, 1.95, noise=40), outcome("pure-char", 1.95, 2.0, noise=50),
        outcome("hclm", 1.8, None, noise=60), outcome("full-transformer", 1.7, 1.75, noise=70),
        outcome("uncond", None),
    ]  # fmt: skip


def tables_of(markdown: str) -> list[list[list[str]]]:
    """The tables of a text, as cells; a bar after a backslash parts nothing."""
    found: list[list[list[str]]] = []
    for before, line in itertools.pairwise(["", *markdown.split("\n")]):
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append([c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def table_with(markdown: str, head: str) -> dict[str, dict[str, str]]:
    """The first table that has such a column, by its first column."""
    rows = next(table for table in tables_of(markdown) if head in table[0])
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- the paper --------------------------------------------------------------------------------


def test_published_figures():
    table1 = published.WIKITEXT_2
    assert (table1["full"].dev, table1["full"].test, table1["full"].never) == (1.416, 1.455, 4.0)
    assert table1["hclm-cache"].test == 1.5 and table1["hclm"].dev_bin(100) is None
    assert table1["pure-char"].dev_bin(1) == 2.08
    # The sweep and the table are about the same models at 50,000 lexemes.
    for name in ("full", "no-reg", "only-reg", "sep-reg"):
        assert published.VOCABULARY_DEV[name][50_000] == table1[name].dev
    assert published.VOCABULARY_DEV["pure-bpe"][46_723] == table1["pure-bpe"].dev
    assert published.VOCABULARY_DEV["full"].keys() == published.VOCABULARY_DEV_LM.keys()
    for size, lm in published.VOCABULARY_DEV_LM.items():
        assert 0.15 < published.VOCABULARY_DEV["full"][size] - lm < 0.7
    assert sum(published.WIKITEXT_2_BIN_TOKENS.values()) == 217_630
    # All bits are in the bins: no mean of them is outside.
    for row in table1.values():
        if row.never is not None and row.frequent is not None:
            assert row.frequent < row.dev < row.never
    assert set(table1) - set(published.WIKITEXT_2_TESTED) == {"hclm", "hclm-cache"}
    dev, test = published.MWC_DEV, published.MWC_TEST
    assert dev.keys() == test.keys() == {"spaces", "reversible"}
    for kind in dev:
        assert dev[kind].keys() == test[kind].keys()
        for name in dev[kind]:
            assert tuple(dev[kind][name]) == tuple(test[kind][name]) == published.LANGUAGES
            assert all(dev[kind][name][x] > test[kind][name][x] for x in published.LANGUAGES)
    assert published.MWC_TEST["spaces"]["full"]["cs"] == 2.240
    assert published.MWC_DEV["reversible"]["full"]["ru"] == 1.745
    assert dict(published.SPELLER_SAMPLES)["Clive"] == "Dickey"
    assert [(r.ngram, r.tokens, r.types) for r in published.NGRAM_RANKS][2] == ("the", 2, 550)


# --- table1 -----------------------------------------------------------------------------------


def test_table1_figures_are_those_of_the_outcomes(tmp_path):
    outcomes = some()
    report = reports.table1(outcomes, COMMAND, 1200.0)
    written = report.write(tmp_path)
    assert [p.name for p in written] == [
        "table1.md", "table1.csv", "table1-runs.csv", "table1-pairs.csv", "table1-agreement.csv",
        "table1.svg", "table1.png",
    ]  # fmt: skip
    rows = {row["label"]: row for row in read_csv(tmp_path / "table1.csv")}
    shown = table_with(report.markdown, "published rank")
    bins = table_with(report.markdown, "never seen")
    training = table_with(report.markdown, "tokens/s")
    for system in {o.system for o in outcomes} - {"uncond"}:
        dev = [o.valid["bpc"] for o in outcomes if o.system == system]
        row, line = rows[system], shown[system]
        assert float(row["dev"]) == pytest.approx(fmean(dev))
        assert line["dev"].startswith(f"{fmean(dev):.3f}")
        assert bins[system]["never seen"] == f"{2.5 * fmean(dev):.3f}"
        assert training[system]["seeds"] == str(len(dev))
        if system in published.WIKITEXT_2:
            assert float(row["published_dev"]) == published.WIKITEXT_2[system].dev
            assert line["published test"] == f"{published.WIKITEXT_2[system].test:.3f}"
        else:
            assert line["published dev"] == line["published rank"] == "–"
    sd = stdev([1.60, 1.62, 1.61])
    assert shown["full"]["dev"] == f"1.610 ± {sd:.3f}"
    assert shown["full"]["p_LM (dev)"] == "1.000" and shown["full"]["p_spell (dev)"] == "0.610"
    assert shown["pure-bpe"]["p_LM (dev)"] == "–"
    assert shown["pure-bpe"]["rank (dev)"] == "1" and shown["pure-bpe"]["published rank"] == "5"
    assert training["full"]["seconds"] == "61"
    assert bins["*tokens*"]["never seen"] == "10"
    # Not there yet: a run begun, one that lacks its test, and a system without runs.
    assert (
        shown["uncond"]["dev"] == shown["hclm"]["test"] == shown["hclm-cache"]["dev"] == "not yet"
    )
    assert len(read_csv(tmp_path / "table1-runs.csv")) == len(outcomes)
    assert (
        "Budget of each training: 20 min." in report.markdown
        and "123,456 tokens" in report.markdown
    )
    assert COMMAND in report.markdown and "not of the same data or budget" in report.markdown
    for o in outcomes:
        assert not o.valid or o.valid["signature"] in report.markdown


def test_significance_is_over_the_mean_of_seeds():
    outcomes = some()
    found = differences(entries(outcomes), "valid")
    assert found is not None and found.n_articles == N_ARTICLES and found.exact
    full = np.mean([[a["bits"] for a in o.valid["articles"]] for o in outcomes[:3]], axis=0)
    others = {
        o.system: np.array([a["bits"] for a in o.valid["articles"]])
        for o in outcomes[3:] if o.valid
    }  # fmt: skip
    bits = {"full": full, **others}
    assert len(found.pairs) == len(bits) * (len(bits) - 1) // 2
    for row in found.pairs:
        truth = scipy.stats.permutation_test(
            (bits[row["a"]] - bits[row["b"]],), np.sum, permutation_type="samples",
            n_resamples=np.inf, alternative="two-sided",
        ).pvalue  # fmt: skip
        assert row["p"] == pytest.approx(truth)
        gap = (bits[row["a"]].sum() - bits[row["b"]].sum()) / outcomes[0].valid["n_chars"]
        assert row["delta"] == pytest.approx(gap)
    assert [r["p_holm"] for r in found.pairs] == holm([r["p"] for r in found.pairs]).tolist()
    markdown = reports.table1(outcomes, COMMAND, None).markdown
    unsure = [r for r in found.pairs if r["p_holm"] >= 0.05]
    on_dev = markdown.partition("### On dev")[2].partition("### On test")[0]
    assert len(re.findall("^- .* minus ", on_dev, re.M)) == len(unsure) > 0
    assert len(re.findall(r"\*\*[\d.]+\*\*", on_dev)) == len(unsure)
    for row in unsure:
        assert f"- {row['a']} minus {row['b']}: " in on_dev


def test_different_texts_are_refused():
    other = outcome("no-reg", 1.7, 1.7)
    other.valid["articles"].pop()
    with pytest.raises(DataError, match="same valid text"):
        reports.table1([outcome("full", 1.6, 1.6), other], COMMAND, None)


@pytest.mark.parametrize("turn", range(4))
def test_agreement_follows_from_the_numbers(turn, tmp_path):
    """Whatever figures the systems have, in whatever order they come."""
    rng = np.random.default_rng(turn)
    names = list(published.WIKITEXT_2)
    ours = dict(zip(names, (1.5 + rng.permutation(len(names)) / 50).tolist(), strict=True))
    if turn == 0:
        ours = {name: row.dev + 0.2 for name, row in published.WIKITEXT_2.items()}
    order = rng.permutation(len(names) - 1)  # the last is missing
    outcomes = [outcome(names[i], ours[names[i]], ours[names[i]], noise=int(i)) for i in order]
    report = reports.table1(outcomes, COMMAND, None)
    counts = table_with(report.markdown, "agree")
    rows = {(r["where"], r["better"], r["worse"]): r for r in report.tables["table1-agreement"]}
    for where in ("dev", "test"):
        agree = reverse = missing = pairs = 0
        for a, b in itertools.permutations(names, 2):
            paper_a, paper_b = (getattr(published.WIKITEXT_2[n], where) for n in (a, b))
            if paper_a >= paper_b:
                assert (where, a, b) not in rows
                continue
            pairs += 1
            row = rows[where, a, b]
            if names[-1] in (a, b):
                missing += 1
                assert row["verdict"] == "not yet" and row["significant"] is None
            else:
                agree += ours[a] < ours[b]
                reverse += ours[a] > ours[b]
                assert row["verdict"] == ("agrees" if ours[a] < ours[b] else "reversed")
                assert row["significant"] == (row["p_holm"] < 0.05)
        line = counts[where]
        assert (line["pairs"], line["agree"]) == (str(pairs), str(agree))
        assert (line["reversed"], line["not yet"]) == (str(reverse), str(missing))
    against = [r for r in report.tables["table1-agreement"] if r["verdict"] == "reversed"]
    told = [t for t in tables_of(report.markdown) if "better in the paper" in t[0]]
    assert sum(len(t) - 2 for t in told) == len(against)
    assert rows["dev", "sep-reg", "pure-bpe"]["published_significant"] is False
    assert rows["dev", "full", "pure-bpe"]["published_significant"] is True
    assert rows["dev", "full", "hclm"]["published_significant"] is None


def test_all_agree():
    outcomes = [outcome("full", 1.6, 1.6), outcome("1gram", 1.9, 1.9)]
    assert "No pair is reversed." in reports.table1(outcomes, COMMAND, None).markdown


def test_agreement_of_equals():
    places = [Place("a", 1.5, 1.2), Place("b", 1.5, 1.3), Place("c", 1.4, 1.3), Place("d", 1, None)]
    found = agreement(places, "dev", lambda a, b: None)
    assert [(r["better"], r["worse"], r["verdict"]) for r in found] == [
        ("a", "b", "equal"), ("a", "c", "reversed"),
    ]  # fmt: skip


def test_two_recipes_of_one_system_are_two_rows():
    outcomes = [
        outcome("full", 1.6), outcome("full", 1.7, recipe="full-strong-norm-small"),
        outcome("no-reg", 1.8, settings=("lm.n_hidden=7",)), outcome("no-reg", 1.9),
    ]  # fmt: skip
    assert [e.label for e in entries(outcomes)] == [
        "full-small", "full-strong-norm-small", "no-reg-small lm.n_hidden=7", "no-reg-small",
    ]  # fmt: skip
    shown = table_with(reports.table1(outcomes, COMMAND, None).markdown, "published rank")
    assert shown["full-strong-norm-small"]["published dev"] == "1.416"


# --- vocabulary, languages --------------------------------------------------------------------


def sweep() -> list[reports.Outcome]:
    found = [
        outcome("full", bpc, settings=(f"vocab_size={n}",), data={"lexemes": n + 1})
        for n, bpc in ((1000, 1.9), (5000, 1.7), (20_000, 1.8))
    ]
    found += [outcome("no-reg", 1.75, settings=("vocab_size=5000",), data={"lexemes": 5001})]
    found += [outcome("no-reg", None, settings=("data.vocab_size=20_000",))]
    return [*found, outcome("pure-bpe", 1.6, settings=("merges=900",), data={"units": 1234})]


def test_vocabulary(tmp_path):
    report = reports.vocabulary(sweep(), COMMAND, 60.0)
    report.write(tmp_path)
    best = table_with(report.markdown, "best size")
    rows = next(t for t in tables_of(report.markdown) if "best size" in t[0])[2:]
    assert ["full", "5,001", "1.700", "inside", "50,000", "1.416"] in rows
    assert ["no-reg", "5,001", "1.750", "the only one", "40,000", "1.425"] in rows
    assert ["pure-bpe", "1,234", "1.600", "the only one", "46,723", "1.430"] in rows
    assert best["sep-reg"]["best size"] == "not yet"
    here = table_with(report.markdown.partition("## Here")[2], "size")
    assert here["5,001"] == {
        "size": "5,001", "full": "1.700", "its p_LM": "1.000", "its p_spell": "0.700",
        "no-reg": "1.750", "pure-bpe": "",
    }  # fmt: skip
    assert here["20,000"]["no-reg"] == "not yet"
    paper = read_csv(tmp_path / "vocabulary-published.csv")
    assert {(r["system"], r["size"]): r["bpc"] for r in paper}["full", "50000"] == "1.416"
    assert len(paper) == sum(map(len, published.VOCABULARY_DEV.values()))


def test_languages(tmp_path):
    outcomes = [
        outcome("full", 2.0, 2.1, dataset="novels-de", settings=("tokenization=spaces",)),
        outcome("pure-bpe", 1.9, 2.0, dataset="novels-de", settings=("tokenization=spaces",)),
        outcome("full", 1.8, 1.9, dataset="novels-de", tok="reversible"),
        outcome("full", 2.5, None, dataset="letters-it", tok="reversible"),
    ]
    report = reports.languages(outcomes, COMMAND, None)
    report.write(tmp_path)
    rows = {
        (r["dataset"], r["tokenization"], r["label"]): r for r in read_csv(tmp_path / "mwc.csv")
    }
    assert rows["novels-de", "spaces", "full"]["dev"] == "2.0"
    assert rows["novels-de", "spaces", "full"]["published_test"] == "1.618"
    assert rows["novels-de", "reversible", "full"]["published_dev"] == "1.51"
    assert rows["novels-de", "reversible", "pure-bpe"]["dev"] == ""  # not yet
    assert rows["letters-it", "reversible", "full"]["published_dev"] == ""
    assert "of other texts" in report.markdown
    of_mwc = reports.languages([outcome("full", 2.0, 2.1, dataset="mwc-de")], COMMAND, None)
    assert "of other texts" not in of_mwc.markdown
    counts = table_with(report.markdown, "agree")["novels-de, dev"]
    # pure-bpe < full both by spaces, and full better by our tokenizer: as in the paper.
    assert (counts["agree"], counts["reversed"]) == ("2", "0")


# --- words ------------------------------------------------------------------------------------


def test_samples_escape(tmp_path):
    pieces = [
        ("a*b", False), (" w_u_g|", True), ("<b>", False), ("\n", False), (" #", False),
        (" x", True), ("\n", False), ("1.", False), (" two", False), ("\n", False), ("`", True),
    ]  # fmt: skip
    text = {"vocabulary": 5000, "temperature": 1.0, "pieces": pieces}
    draws = [("a|b", ["x*y*", "_z_", "<p>", "two\nlines"]), ("Clive", ["Dick"])]
    report = reports.samples(draws, [text], COMMAND)
    report.write(tmp_path)
    lines = report.markdown.split("\n")
    assert r"| a\|b | x\*y\*, \_z\_, \<p\>, two lines | – |" in lines
    assert "| Clive | Dick | Dickey |" in lines
    assert r"> a\*b <b>w\_u\_g\|</b>\<b\>" in lines
    assert r"> \# <b>x</b>" in lines and r"> 1\. two" in lines and r"> <b>\`</b>" in lines
    assert "### Vocabulary 5,000, temperature 1.0" in lines
    assert read_csv(tmp_path / "samples-words.csv")[0] == {
        "word": "a|b",
        "draw": "0",
        "drawn": "x*y*",
    }
    novel = read_csv(tmp_path / "samples-novel.csv")[0]
    assert (novel["tokens"], novel["novel"], novel["invented"]) == ("11", "3", "w_u_g| x `")


def test_escape_is_undone_by_markdown():
    text = r"\ ` * _ [x](y) <b> | ~ & # $ - 1. + ="
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", escape(text)) == text


WORDS = {"the": 50, "then": 5, "that": 9, "cat": 3, "dog": 2, "a": 20, "walked": 1, "talked": 1}


@pytest.mark.parametrize("n", [2, 3])
def test_ngram_ranks(n):
    found = rank_ngrams("toy", WORDS, n)
    tokens: dict[str, int] = {}
    types: dict[str, int] = {}
    for word, times in WORDS.items():
        word = f"␣{word}␣" if n == 3 else word
        for i in range(len(word) - n + 1):
            tokens[word[i : i + n]] = tokens.get(word[i : i + n], 0) + times
            types[word[i : i + n]] = types.get(word[i : i + n], 0) + 1
    assert set(found.ngrams) == set(tokens)
    for i, ngram in enumerate(found.ngrams):
        assert found.token_ranks[i] == 1 + sum(c > tokens[ngram] for c in tokens.values())
        assert found.type_ranks[i] == 1 + sum(c > types[ngram] for c in types.values())
    truth = scipy.stats.spearmanr(
        [tokens[g] for g in found.ngrams], [types[g] for g in found.ngrams]
    )
    assert found.spearman == pytest.approx(truth.statistic)
    assert found.ngrams[found.top(1)[0]] == ("th" if n == 2 else "␣th")


def test_count_words():
    counts = count_words(["the (<unk>) cat, the\n", "a  cat.\n"], TextFormat(unk="<unk>"))
    assert counts == {"the": 2, "(": 1, ")": 1, "cat": 2, ",": 1, "a": 1, ".": 1}
    counts = count_words(["the <unk> 's\n", "\n"], TextFormat("spaces", unk="<unk>"))
    assert counts == {"the": 1, "'s": 1}
    with pytest.raises(DataError, match="longer text"):
        rank_ngrams("nothing", {"a": 3}, 2)


def test_types_tokens(tmp_path):
    ranks = [rank_ngrams("toy", {**WORDS, "x|y": 1, "q`z": 1}, n) for n in (2, 3)]
    report = reports.types_tokens(ranks, COMMAND)
    report.write(tmp_path)
    top = table_with(report.markdown, "published: tokens")
    assert (top["`th`"]["among tokens"], top["`th`"]["published: types"]) == ("1", "156")
    one = ranks[1]
    written = read_csv(tmp_path / "types-tokens-ranks.csv")
    mine = [r for r in written if r["n"] == "3"]
    assert [r["ngram"] for r in mine] == list(one.ngrams)
    assert [int(r["rank_among_types"]) for r in mine] == one.type_ranks.tolist()
    assert "292 of 5,261" in report.markdown


# --- all of them ------------------------------------------------------------------------------


def all_reports(whole: bool) -> list[reports.Report]:
    outcomes = some() if whole else [outcome("uncond", None)]
    pieces = [(" word", False), (" wug", True), ("\n", False)] * 60 + [(" " + "y" * 300, True)]
    pieces[1:1] = [(" --\x00\ud800>", True), (" Привет", True)]
    texts = [{"vocabulary": 5000, "temperature": 0.75, "pieces": pieces}]
    return [
        reports.table1(outcomes, COMMAND, None),
        reports.vocabulary(sweep() if whole else [], COMMAND, None),
        reports.languages(outcomes, COMMAND, None),
        reports.samples([("a", ["b"])] if whole else [], texts if whole else [], COMMAND),
        reports.types_tokens([rank_ngrams("toy", WORDS, 2)] if whole else [], COMMAND),
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_written(whole, tmp_path):
    """Half done or not: rectangular tables, well-formed pictures, the same bytes each time."""
    for report in all_reports(whole):
        first = report.write(tmp_path / "one" / report.name)
        tables = tables_of(report.markdown)
        assert tables
        for cells in tables:
            assert len({len(row) for row in cells}) == 1, cells[0]
        for link in re.findall(r"\]\((.+?)\)", report.markdown):
            assert tmp_path / "one" / report.name / link in first
        for path in first:
            if path.suffix == ".svg":
                assert ET.parse(path).getroot().tag.endswith("svg")
            if path.suffix == ".png":
                assert path.read_bytes().startswith(b"\x89PNG")
        assert not whole or {".md", ".csv", ".svg", ".png"} <= {p.suffix for p in first}
        assert sorted(first) == sorted((tmp_path / "one" / report.name).iterdir())
    for report in all_reports(whole):
        for path in report.write(tmp_path / "two" / report.name):
            same = tmp_path / "one" / report.name / path.name
            assert path.read_bytes() == same.read_bytes(), path.name


def test_nothing_at_all():
    for make in (reports.table1, reports.vocabulary, reports.languages):
        assert "not yet" in make([], COMMAND, None).markdown.lower()


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"spellonce\[plot\]"):
        reports.table1(some(), COMMAND, None).write(tmp_path)
    assert (tmp_path / "table1.md").is_file() and (tmp_path / "table1.csv").is_file()


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        reports.samples([], [], COMMAND).write(tmp_path / "file")
