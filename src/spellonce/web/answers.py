"""What the API answers: what `/openapi.json` describes, and what tests hold answers to."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Token(BaseModel):
    """A token of a text that was scored."""

    line: int
    index: int
    token: str
    start: int
    end: int
    bits: float
    bits_lexeme: float = Field(description="To choose the lexeme, or to announce a novel word.")
    bits_spelling: float
    novel: bool
    characters: list[tuple[str, float]] | None = Field(
        description="Bits of each character of a novel word; the last is its end."
    )
    bits_cached: float | None = Field(None, description="With the cache, if it was asked for.")
    from_cache: float | None = Field(None, description="How much of its probability is memory.")
    summoned: int | None = Field(None, description="The earlier token that was summoned.")


class Sum(BaseModel):
    """Bits of a whole text."""

    bits: float
    bpc: float


class Scores(Sum):
    """The answer to `score`."""

    tokens: list[Token]
    n_chars: int
    cached: Sum | None


class Likely(BaseModel):
    """A word and its probability."""

    word: str
    p: float


class Alternatives(BaseModel):
    """The answer to `alternatives`."""

    lexemes: list[Likely]
    p_novel: float
    spellings: list[str]


class Wug(BaseModel):
    """A word that was made up."""

    word: str
    bits: float | None


class Wugs(BaseModel):
    """The answer to `spell`."""

    words: list[Wug]
    why: str | None = Field(description="Why there are no more, if there are fewer than asked for.")


class Near(BaseModel):
    """A lexeme that is used alike."""

    word: str
    shown: str
    cosine: float


class Neighbours(BaseModel):
    """The answer to `neighbours`."""

    word: str
    known: bool
    x: float
    y: float
    neighbours: list[Near]


class Map(BaseModel):
    """The answer to `map`."""

    words: list[str]
    shown: list[str]
    x: list[float]
    y: list[float]
    counts: list[int]


class About(BaseModel):
    """The answer to `model`."""

    recipe: str
    data: str
    lexemes: int
    alphabet: int
    tokenization: str
    tuned: bool
    valid_bpc: float | None
    tokens: int | None


class Row(BaseModel):
    """A line of the log of a training."""

    step: int
    epoch: float | None
    train_bpc: float | None
    train_bpc_lm: float | None
    train_bpc_spell: float | None
    valid_bpc: float | None


class Training(BaseModel):
    """The answer to `training`."""

    rows: list[Row]


class Results(BaseModel):
    """The answer to `results`."""

    figures: list[str]
    tables: list[str]


class Table(BaseModel):
    """One of the tables."""

    columns: list[str]
    rows: list[list[str]]
