"""The server: its address, its workers, its shutdown."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from uvicorn.supervisors import Multiprocess

from countveil.config.configuration import Config
from countveil.curator.curator import Curator
from countveil.errors import ParameterError, RequestError
from countveil.service.api_keys import Keyring
from countveil.service.app import ENVIRONMENT, LOOPBACK, Settings, make_folder
from countveil.service.connection_limits import BACKLOG
from countveil.service.metrics import SHARED

GRACE = 30
"""Seconds that running requests have to finish at shutdown."""
HUNG = 20
"""How many seconds a worker may give no sign of life before it is replaced. On a busy machine, uvicorn's 5 are too few.
"""
THIS_MACHINE = ("127.0.0.0/8", "::1/128")
"""The networks whose proxies are trusted if none are given: this machine only."""


@dataclass(frozen=True)
class Place:
    """Where a server listens, and which proxies it is behind."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    names: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    behind_proxy: bool = False
    proxies: tuple[str, ...] = ()

    @property
    def loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def check(self) -> None:
        """Refuse options that do not fit together, unusable TLS files, invalid addresses of proxies, and an address at
        which keys and answers would be sent unencrypted to other machines."""
        if (self.certificate is None) != (self.key is None):
            raise RequestError("TLS needs both: --tls-certificate FILE and --tls-key FILE")
        for option, file in (("tls-certificate", self.certificate), ("tls-key", self.key)):
            if file is not None and not Path(file).is_file():
                raise ParameterError(option, file, "a file that can be read")
        if self.certificate is not None:
            try:  # checked here, because a worker that fails would be restarted again and again
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, lambda: "")
            except (ssl.SSLError, OSError, ValueError):
                raise RequestError(
                    f"{self.certificate} and {self.key} cannot be used for TLS; give a certificate and its own key, "
                    "both in PEM, the key without a pass phrase"
                ) from None
        if self.proxies and not self.behind_proxy:
            raise RequestError("--proxy needs --behind-proxy: give both, or leave out --proxy")
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                allowed = "an address or a network, such as 10.0.0.7 or 10.0.0.0/24"
                raise ParameterError("proxy", proxy, allowed) from None
        if not self.loopback and self.certificate is None and not self.behind_proxy:
            raise RequestError(
                f"{self.host} can be reached from other machines, and keys would be sent unencrypted: give "
                "--tls-certificate and --tls-key, or --behind-proxy if a proxy does TLS, or --host 127.0.0.1"
            )


def serve(
    config: Config,
    place: Place,
    announce: Callable[[str], None],
    began: Callable[[str | None], None] = lambda name: None,
    *,
    new_ledger: bool = False,
) -> None:
    """Serve until a signal arrives, then finish running requests.

    `announce` gets the address of the service. `began` gets the name of the ledger if it was just created, else None.
    """
    place.check()
    with Curator.open(
        config, new_ledger=new_ledger
    ) as curator:  # reports errors of the configuration or the ledger once
        began(curator.ledger.begun)
    Keyring(config.service.keys).keys()
    opened = config.service.open_design
    folder = make_folder(config)
    settings = Settings(
        str(config.path),
        place.loopback and not place.behind_proxy if opened is None else opened,
        (*(LOOPBACK if place.loopback else ()), *place.names) if place.loopback or place.names else (),
        place.certificate is not None,
        config.service.rate / place.workers,
        place.certificate is not None or place.behind_proxy,
        place.workers > 1,
        place.proxies or (THIS_MACHINE if place.behind_proxy else ()),
        folder,
    )
    os.environ[ENVIRONMENT] = settings.text()
    if place.workers > 1:
        os.environ[SHARED] = folder
    try:
        with _listen(place) as listener:
            host = f"[{place.host}]" if ":" in place.host else place.host
            secure = "s" if place.certificate else ""
            announce(f"http{secure}://{host}:{listener.getsockname()[1]}")
            _run(place, listener)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listen(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    # with IPPROTO_TCP, asyncio sets TCP_NODELAY; without it a response on a kept connection is delayed by 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.host, place.port))
        listener.listen(BACKLOG)  # from now on clients wait instead of being refused: announce the address
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or "not a port"
        raise RequestError(
            f"{place.host} port {place.port} cannot be used ({reason}); choose others with --host and --port"
        ) from None
    listener.set_inheritable(True)
    return listener


def _run(place: Place, listener: socket.socket) -> None:
    config = uvicorn.Config(
        "countveil.service.app:from_environment",
        factory=True,
        workers=place.workers,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.key,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=30,
        timeout_worker_healthcheck=HUNG,
        h11_max_incomplete_event_size=32 * 1024,
        log_config=LOGGING,
        ws="none",
        http="countveil.service.connection_limits:ClientConnection",
        loop="countveil.service.connection_limits:Loop",
    )
    if place.workers == 1:
        uvicorn.Server(config).run(sockets=[listener])
    else:
        Multiprocess(config, sockets=[listener]).run()


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(message)s"}, "server": {"()": "countveil.service.middleware.ServerLines"}},
    "handlers": {
        "lines": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"},
        "server": {"class": "logging.StreamHandler", "formatter": "server", "stream": "ext://sys.stderr"},
    },
    "loggers": {
        "countveil.service": {"handlers": ["lines"], "level": "INFO", "propagate": False},
        "uvicorn.error": {"handlers": ["server"], "level": "WARNING", "propagate": False},
    },
}
