"""org/name from the Hub: asked only where it can answer, and never longer than a second for nothing."""

from __future__ import annotations

import json
import socket
import sys
import time
import types

import pytest

from zeroplan.catalog import hub
from zeroplan.catalog.models import model
from zeroplan.errors import SpecError


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def client(monkeypatch, answer):
    """A huggingface_hub whose download does what `answer` does."""
    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = answer
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def online(monkeypatch, connect=lambda address, timeout: types.SimpleNamespace(close=lambda: None)):
    asked = []
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: asked.append(address) or connect(address, timeout))
    return asked


def refused(address, timeout):
    raise ConnectionRefusedError


def test_a_repository_is_read_from_the_hub(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 2}))
    client(monkeypatch, lambda name, file: str(tmp_path / file))
    assert online(monkeypatch) == []
    assert model("some/one").shape.layers == 2


def test_the_hub_is_asked_of_a_fine_tune_that_is_named_as_a_preset(monkeypatch, tmp_path):
    """Its vocabulary may be another: 32,001 tokens where Llama 2 has 32,000."""
    config = {"model_type": "llama", "vocab_size": 32001}
    (tmp_path / "config.json").write_text(json.dumps(config))
    client(monkeypatch, lambda name, file: str(tmp_path / file))
    online(monkeypatch)
    assert model("NousResearch/Llama-2-7b-hf").parameters == 6_738_415_616 + 2 * 4096


def test_a_publisher_s_own_needs_no_network(monkeypatch):
    asked = online(monkeypatch, refused)
    assert model("meta-llama/Llama-3.1-8B-Instruct").name == "llama-3.1-8b"
    assert asked == []


def silent(address, timeout):
    time.sleep(2)
    raise TimeoutError


@pytest.mark.parametrize("connect", [refused, silent])
def test_without_a_network_it_fails_within_a_second(monkeypatch, connect):
    client(monkeypatch, lambda name, file: pytest.fail("the client was asked"))
    online(monkeypatch, connect)
    start = time.perf_counter()
    with pytest.raises(SpecError, match="no connection to huggingface.co"):
        model("some/one")
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_machine_that_is_told_to_stay_offline_does(monkeypatch, variable):
    asked = online(monkeypatch)
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SpecError, match=f"{variable} is set"):
        model("some/one")
    assert asked == []


def test_without_the_client_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    online(monkeypatch)
    with pytest.raises(SpecError, match=r"pip install 'zeroplan\[hub\]'"):
        model("some/one")


def test_a_name_that_the_hub_does_not_know_is_no_preset(monkeypatch):
    class RepositoryNotFoundError(Exception):
        pass

    def answer(name, file):
        raise RepositoryNotFoundError

    client(monkeypatch, answer)
    online(monkeypatch)
    with pytest.raises(SpecError, match=r"no config.json on the Hub \(RepositoryNotFoundError\)"):
        model("somebody/Llama-2-7b-hf")


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, ("huggingface.co", 443)),
        ({"HF_ENDPOINT": "http://mirror.example:8080"}, ("mirror.example", 8080)),
        ({"https_proxy": "http://proxy.example:3128"}, ("proxy.example", 3128)),
        ({"https_proxy": "proxy.example:3128"}, ("proxy.example", 3128)),
        ({"https_proxy": "http://proxy.example:3128", "no_proxy": "huggingface.co"}, ("huggingface.co", 443)),
    ],
)
def test_who_is_asked_first(monkeypatch, variables, host):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    asked = online(monkeypatch)
    hub._check_online()
    assert asked == [host]
