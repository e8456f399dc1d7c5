"""config.json of org/name: from the local Hugging Face cache, or from the Hub where it answers.

A machine without a network is told so within a second: the Hub's client alone takes longer to import, and its name
server or its retries may keep a command waiting for a minute.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from zeroplan.catalog.files import read_text
from zeroplan.errors import SpecError

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
LONGEST_REVISION = 1000
"""Bytes: a commit has 40."""
PATIENCE = 0.6
"""Seconds in which the Hub, or the proxy to it, takes a connection."""
USUAL_ENDPOINT = "https://huggingface.co"
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
YES = ("1", "ON", "YES", "TRUE")
"""As the Hub's client reads them."""


class OutOfReachError(Exception):
    """The Hub cannot be asked; its text says why."""


def cached(name: str) -> Path | None:
    """config.json of org/name in the Hugging Face cache, if it is there."""
    if not REPOSITORY.fullmatch(name):
        return None
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    root = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    try:
        revision = read_text(root / "refs" / "main", "a revision", LONGEST_REVISION).strip()
    except SpecError:
        return None
    path = root / "snapshots" / revision / "config.json"
    return path if path.is_file() else None


def fetched(name: str, *, online: bool = True) -> Path:
    """config.json of org/name through huggingface_hub (an optional extra), which keeps it in the local cache.

    Raises `OutOfReachError` where nothing can be asked, or is to be (`online`), and `SpecError` where the Hub has no
    such file for us.
    """
    if not online:
        raise OutOfReachError("it is asked where --model names it, or a card is named")
    _check_online()
    try:
        from huggingface_hub import hf_hub_download  # optional extra
    except ImportError:
        raise OutOfReachError("huggingface_hub is not installed: pip install 'zeroplan[hub]'") from None
    try:
        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:  # the Hub's client raises requests', httpx's and its own
        reason = type(error).__name__
        if reason in ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "ConnectError"):
            raise OutOfReachError(f"no answer from the Hub: {reason}") from error
        suggestion = f"another name, or download its config.json and write --model {_folder(name)}/config.json"
        missing = f"no config.json on the Hub ({reason})"
        raise SpecError(f"--model {name}", missing, "one to read", suggestion) from error


def out_of_reach(name: str, error: OutOfReachError) -> SpecError:
    """What to say of a repository that cannot be read."""
    return SpecError(
        f"--model {name}", f"no preset, nothing in the local Hugging Face cache, and no way to the Hub ({error})",
        "a model known here", f"--model {_folder(name)}/config.json once that file is downloaded",
    )  # fmt: skip


def _folder(name: str) -> str:
    return name.rpartition("/")[2]


def _check_online() -> None:
    for variable in OFFLINE:
        if os.environ.get(variable, "").upper() in YES:
            raise OutOfReachError(f"{variable} is set")
    host, port = _first_hop()
    if not _takes_connections(host, port):
        raise OutOfReachError(f"no connection to {host} within {PATIENCE} s")


def _first_hop() -> tuple[str, int]:
    """The host and port that a request for the Hub goes to: its own, or a proxy's."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    target = urlsplit(os.environ.get("HF_ENDPOINT") or USUAL_ENDPOINT)
    proxies = getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all")
    if proxy and target.hostname and not proxy_bypass(target.hostname):
        target = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    try:
        port = target.port
    except ValueError:
        port = None
    return target.hostname or "", port or (80 if target.scheme == "http" else 443)


def _takes_connections(host: str, port: int) -> bool:
    """Whether it does in time. In a thread, for a name server may take longer than any timeout of a socket."""
    import socket
    from threading import Thread

    answers: list[bool] = []

    def ask() -> None:
        try:
            socket.create_connection((host, port), PATIENCE).close()
        except (OSError, UnicodeError):
            return
        answers.append(True)

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return bool(answers)
