"""The command line: `main` runs the commands, and every failure is one line and an exit code."""

from __future__ import annotations

import os

# Threads that wait for each other spin for a moment and then sleep: where other programs want the
# cores too, spinning on makes training several times slower. Read when torch is first imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import io
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

import typer

from spellonce.commands import coding, models, research, serving, words  # noqa: F401
from spellonce.commands.shared import app
from spellonce.errors import SpellOnceError


def main() -> None:
    """Runs the command line; every failure is one line on stderr and an exit code."""
    if sys.stdout is None:
        sys.exit(_fail("there is nowhere to write: standard output is closed", 1))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        code = app(prog_name="spellonce", standalone_mode=False) or 0
        sys.stdout.flush()
    except SpellOnceError as error:
        code = error.exit_code if error.is_told else _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("stopped", 1)
    except BrokenPipeError:
        _drop_output()
        code = 1  # whoever read us has gone; nothing is left to say
    except OSError as error:
        _drop_output()
        what = f"cannot use {error.filename}" if error.filename else "cannot write"
        code = _fail(f"{what}: {error.strerror or error}", 1)
    except Exception as error:
        if hasattr(error, "format_message"):
            code = _wrong_usage(error)
        elif isinstance(error, MemoryError) or "allocate memory" in str(error):
            code = _fail("out of memory: try a smaller recipe or a smaller vocab_size", 1)
        elif os.environ.get("SPELLONCE_DEBUG"):
            raise
        else:
            what = f"internal error, {type(error).__name__}: {error}"
            code = _fail(f"{what} (please report it; SPELLONCE_DEBUG=1 shows where it was)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _stop(number: int, frame: object) -> None:
    """SIGTERM is to a command what Ctrl-C is; training saves first, where it has begun."""
    raise KeyboardInterrupt


def _wrong_usage(error: Any) -> int:
    message: str = error.format_message()
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return 2
    hint = getattr(context, "command_path", "spellonce")
    return _fail(f"{message} (see {hint} --help)", 2)


def _drop_output() -> None:
    """What could not be written is not tried again when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> int:
    print(f"spellonce: {' '.join(message.split())}", file=sys.stderr)
    return code
