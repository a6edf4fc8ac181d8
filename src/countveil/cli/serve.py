"""`countveil serve`: run the HTTP service."""

from __future__ import annotations

from typing import Any

import click

from countveil.cli.output import CONFIG, NEW_LEDGER, Command, print_new_ledger


@click.command(cls=Command, short_help="Run the HTTP service.")
@CONFIG
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 takes a free one.",
)
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="The number of worker processes."
)
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="A host name that clients use for this service (may repeat)."
)
@click.option("--tls-certificate", "certificate", metavar="FILE", help="The certificate chain for TLS.")
@click.option("--tls-key", "key", metavar="FILE", help="The private key of the TLS certificate.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front does TLS and sets X-Forwarded-For.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The address or network of a trusted proxy (may repeat; default: this machine).",
)
@NEW_LEDGER
def serve(config: str | None, new_ledger: bool, **place: Any) -> None:
    """Serve the datasets of a configuration: HTTP API, documentation at /docs, and a web page to ask and explore.

    Every analyst needs a key: countveil keys add NAME. By default the service listens on this machine only; other
    machines can reach it only through TLS.

    \b
    Examples:
      countveil serve
      countveil serve --workers 4
      countveil serve --host 0.0.0.0 --tls-certificate chain.pem --tls-key key.pem --name counts.example.org
      countveil serve --behind-proxy --name counts.example.org
    """
    from countveil.config.configuration import load
    from countveil.errors import MissingExtraError

    try:
        from countveil.service.server import Place, serve
    except ImportError as error:
        raise MissingExtraError((error.name or "the server").split(".")[0], "server") from None
    loaded = load(config)

    def announce(address: str) -> None:
        click.echo(f"countveil serves at {address}; stop it with Ctrl-C", err=True)
        if not loaded.service.keys.exists():
            click.echo("there is no key yet; add one with: countveil keys add NAME", err=True)

    serve(loaded, Place(**place), announce, print_new_ledger, new_ledger=new_ledger)
