"""A page to look at a model."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from spellonce.commands.shared import DeviceOption, ModelOption, app
from spellonce.errors import ConfigError, SpellOnceError

if TYPE_CHECKING:
    from spellonce.web.views import Views


def _is_local(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@app.command()
def serve(
    model: ModelOption = None,
    host: Annotated[str, typer.Option(help="Where to listen; 127.0.0.1: this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    device: DeviceOption = "cpu",
) -> None:
    """Serve a page to read, write, spell and explore with a model."""
    try:
        import uvicorn

        from spellonce.web.app import LOCAL, create_app
        from spellonce.web.serving import Loading
    except ImportError as error:
        raise ConfigError(
            f"the page needs {error.name}, which is not installed: pip install 'spellonce[web]'"
        ) from None

    def load() -> Views:
        from spellonce.commands.shared import load_model
        from spellonce.web.views import Views

        return Views(load_model(model, device))

    is_six = ":" in host
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if is_six else socket.AF_INET
        )
    except OSError as error:
        raise SpellOnceError(
            f"cannot listen on {host}:{port} ({error.strerror or error}): try another --port"
        ) from error
    with listening:
        loading = Loading(load)
        served = create_app(loading, hosts=(*LOCAL, host) if _is_local(host) else ())
        server = uvicorn.Server(
            uvicorn.Config(
                served, log_level="warning", server_header=False, access_log=False,
                timeout_graceful_shutdown=3,
            )
        )  # fmt: skip
        failed: list[BaseException] = []

        def give_up(error: BaseException) -> None:
            failed.append(error)
            server.should_exit = True

        loading.on_failure(give_up)
        place = f"[{host}]" if is_six else host
        typer.echo(f"http://{place}:{listening.getsockname()[1]}  (Ctrl-C ends it)")
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn has shut down, and tells the signal again
            return
    if failed:
        raise failed[0]
