"""Whoever watches a training: the library tells, the command line shows."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Whoever watches a training."""

    def status(self, message: str) -> None:
        """What is being done now."""

    def warn(self, message: str) -> None:
        """Something that the user should know."""

    def progress(self, step: int, total: int, bpc: float | None) -> None:
        """A step was taken; bpc on the training text, when there is a new figure."""


class Silent:
    """A reporter that says nothing."""

    def status(self, message: str) -> None:
        """Nothing."""

    def warn(self, message: str) -> None:
        """Nothing."""

    def progress(self, step: int, total: int, bpc: float | None) -> None:
        """Nothing."""
