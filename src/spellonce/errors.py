"""What can go wrong, said in one line each.

Every error that a user can cause is a `SpellOnceError` whose message says what is wrong and what
to do next; the command line prints it and exits with `exit_code`.
"""


class SpellOnceError(Exception):
    """Something could not be done."""

    exit_code = 1
    is_told = False
    """Whether another process says so already."""


class ConfigError(SpellOnceError):
    """A recipe, a field or a value that makes no sense."""

    exit_code = 2


class DataError(SpellOnceError):
    """A text or data set that cannot be read."""


class RunError(SpellOnceError):
    """A run folder that cannot be read, written or continued."""


class InterruptedTrainingError(SpellOnceError):
    """Training was stopped by a signal, after saving what it had."""


class AbandonedError(SpellOnceError):
    """Work was stopped because nobody wanted it any longer, or because it took too long."""
