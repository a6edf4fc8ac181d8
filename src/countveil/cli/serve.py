"""`countveil serve`: answer over HTTP."""

from __future__ import annotations

from typing import Any

import click

from countveil.cli.output import CONFIG, Command, print_begun


@click.command(cls=Command)
@CONFIG
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes that answer.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name it is asked by (may repeat).")
@click.option("--tls-certificate", "certificate", metavar="FILE", help="The certificate chain, for TLS.")
@click.option("--tls-key", "key", metavar="FILE", help="The certificate's key.")
@click.option("--behind-proxy", is_flag=True, help="A proxy does TLS and adds to X-Forwarded-For.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="The address or network of a proxy to believe (may repeat; default: this machine).",
)
def serve(config: str | None, **place: Any) -> None:
    """Serve the datasets of a configuration: HTTP API, documentation at /docs, and a page to ask and to explore.

    Who asks needs a key: countveil keys add NAME. It listens on this machine alone unless told otherwise, and other
    machines only ever reach it through TLS.

    \b
    Examples:
      countveil serve
      countveil serve --workers 4
      countveil serve --host 0.0.0.0 --tls-certificate chain.pem --tls-key key.pem --name counts.example.org
      countveil serve --behind-proxy --name counts.example.org
    """
    from countveil.config import load
    from countveil.errors import MissingExtraError

    try:
        from countveil.service.running import Place, serve
    except ImportError as error:
        raise MissingExtraError((error.name or "the server").split(".")[0], "server") from None
    loaded = load(config)

    def announce(address: str) -> None:
        click.echo(f"countveil serves at {address}; stop it with Ctrl-C", err=True)
        if not loaded.service.keys.exists():
            click.echo("nobody has a key yet; give one with: countveil keys add NAME", err=True)

    serve(loaded, Place(**place), announce, print_begun)
