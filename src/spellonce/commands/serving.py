"""A page to look at a model."""

from __future__ import annotations

from typing import Annotated

import typer

from spellonce.commands.shared import DeviceOption, ModelOption, app, load_model
from spellonce.errors import ConfigError, SpellOnceError


@app.command()
def serve(
    model: ModelOption = None,
    host: Annotated[str, typer.Option(help="Where to listen; 127.0.0.1: this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    device: DeviceOption = "cpu",
) -> None:
    """Open a page to read, write, spell and explore with a model."""
    try:
        import uvicorn

        from spellonce.web.app import create_app
    except ImportError as error:
        raise ConfigError(
            f"the page needs {error.name}, which is not installed: pip install 'spellonce[web]'"
        ) from None
    served = create_app(load_model(model, device))
    settings = uvicorn.Config(
        served, host=host, port=port, log_level="warning", server_header=False,
        timeout_graceful_shutdown=3, access_log=False,
    )  # fmt: skip
    typer.echo(f"http://{host}:{port}  (Ctrl-C ends it)")
    try:
        uvicorn.Server(settings).run()
    except SystemExit:  # what uvicorn does where it cannot listen
        raise SpellOnceError(f"cannot listen on {host}:{port}: try another --port") from None
