"""A node's file in place of a preset: what it states is used, and what is wrong with it is one line."""

from __future__ import annotations

import pytest

from zeroplan.catalog import hardware, presets
from zeroplan.catalog.models import from_preset
from zeroplan.costs.timing import rates
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy, Workload

FIGURE = "{{value: {}, source: a bench, date: '2026-11-22', evidence: measured}}"
GOOD = f"""
title: two cards of mine
gpu: a100-80gb
gpus_per_node: 2
host_memory: {FIGURE.format("256 GiB")}
intra_node: {FIGURE.format("20 GB/s")}
nvme_read: {FIGURE.format("3 GB/s")}
host_adam: {FIGURE.format("2.5e9 /s")}
hop: {FIGURE.format("4e-6 s")}
sustained_matmul: {FIGURE.format("200 TFLOP/s")}
memory_bandwidth: {FIGURE.format("1700 GB/s")}
host_link: {FIGURE.format("22 GB/s")}
observations: [anything]
"""


def rates_of(cluster: Cluster) -> rates.Rates:
    return rates.rates(Job(from_preset("gpt2"), cluster, Workload(), Strategy(2)))


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes, name: str = "node.yaml") -> str:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def test_what_a_file_states_is_what_the_clock_takes(node):
    cluster = hardware.cluster(node(GOOD))
    assert (cluster.name, cluster.gpus_per_node, cluster.host_memory) == ("node.yaml", 2, 256 * 2**30)
    assert cluster.intra_node.value == 20e9
    assert rates.host_adam(cluster).value == 2.5e9
    assert cluster.hop.value == 4e-6
    # measured: reached already, and no share of it is taken
    at = rates_of(cluster)
    assert (at.products.value, at.memory.value, rates.host_link(cluster).value) == (200e12, 1700e9, 22e9)
    assert at.memory.evidence == "measured"
    assert cluster.gpu.memory == hardware.gpu("a100-80gb").memory


def test_a_stated_figure_that_was_not_measured_is_nominal(node):
    text = GOOD.replace("1700 GB/s, source: a bench, date: '2026-11-22', evidence: measured",
                        "2000 GB/s, source: a sheet, date: '2026-11-22', evidence: datasheet")  # fmt: skip
    assert rates_of(hardware.cluster(node(text))).memory.value == 0.8 * 2000e9


def test_presets_take_the_same_share_as_before():
    """0.8 of 2039 GB/s and of 31 GB/s, as presets/gpus/a100-80gb.json has them."""
    cluster = hardware.cluster("dgx-a100")
    assert rates_of(cluster).memory.value == pytest.approx(0.8 * 2039e9)
    assert rates.host_link(cluster).value == pytest.approx(0.8 * 31e9)


def test_a_file_on_the_command_line(zeroplan, node):
    job = ("--params", "7B", "--stage", "2", "--offload-optimizer", "cpu", "--json")
    own = zeroplan("estimate", *job, "--cluster", node(GOOD)).json
    assert own["cluster"] == {"name": "node.yaml", "nodes": 1, "gpus_per_node": 2, "gpus": 2, "gpu": "a100-80gb"}
    update = next(term for term in own["time"]["terms"] if term["name"] == "optimizer on the CPU")
    assert update["seconds"] == pytest.approx(own["model"]["parameters"] / 2.5e9)
    assert update["evidence"] == "measured"


def test_a_file_without_a_card_takes_that_of_the_command_line(zeroplan, node):
    text = f"gpus_per_node: 4\nhost_adam: {FIGURE.format('2.5e9 /s')}\n"
    job = ("--params", "7B", "--stage", "2", "--cluster", node(text), "--json")
    bare = zeroplan("estimate", *job).json
    assert (bare["cluster"]["gpus"], bare["cluster"]["gpu"], bare["time"]) == (4, None, None)
    named = zeroplan("estimate", *job, "--gpu", "a100-80gb", "--gpus", "8").json
    assert (named["cluster"]["nodes"], named["cluster"]["gpus_per_node"]) == (2, 4)
    assert named["time"]["step"] > 0


BOMB = "a: &a [x, x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]" for i in range(24)
)
BAD = [
    ("[1, 2]", "a list", "zeroplan calibrate"),
    ("", "nothing", "zeroplan calibrate"),
    ("just words", "'just words'", "zeroplan calibrate"),
    ("gpu: [a", "no YAML", "line 1"),
    ("a: b: c", "no YAML", "line 1, column 5"),
    ("\x00", "no YAML", "node.yaml"),
    (b"\xff\xfe", "not UTF-8", "byte 0"),
    ("date: 2026-13-45", "no YAML", "month"),
    ("[" * 100_000, "no YAML", "node.yaml"),
    (BOMB, "unknown field", "node.yaml.a"),
    ("gpu: a100-80gb", "no gpus_per_node", "gpus_per_node: 8"),
    ("gpus_per_node: many", "'many'", "whole number"),
    ("gpus_per_node: true", "True", "whole number"),
    ("gpus_per_node: 0", "0", "whole number"),
    ("gpu: rtx-9090\ngpus_per_node: 8", "rtx-9090", "zeroplan gpus"),
    ("gpu: 4090\ngpus_per_node: 8", "4090", "zeroplan gpus"),
    ("gpus_per_node: 8\nhost_adm: 3", "unknown field", "host_adam"),
    ("gpus_per_node: 8\nintra_node: 20 GB/s", "'20 GB/s'", "value, source, date, evidence"),
    ("gpus_per_node: 8\nintra_node: {value: 20 GB/s, source: x, date: y}", "no evidence", "evidence"),
    ("gpus_per_node: 8\nintra_node: {value: [1], source: x, date: y, evidence: measured}", "a list", "text"),
    ("gpus_per_node: 8\nintra_node: {value: 1 GB/s, source: x, date: y, evidence: hoped}", "'hoped'", "measured"),
    (f"gpus_per_node: 8\nintra_node: {FIGURE.format('20 GiB/s')}", "'20 GiB/s'", "450 GB/s"),
    (f"gpus_per_node: 8\nintra_node: {FIGURE.format('0 GB/s')}", "'0 GB/s'", "more than zero"),
    (f"gpus_per_node: 8\nhop: {FIGURE.format('4 us')}", "'4 us'", "the unit s"),
    (f"gpus_per_node: 8\nhop: {FIGURE.format('-4e-6 s')}", "'-4e-6 s'", "the unit s"),
    (f"gpus_per_node: 8\nhost_adam: {FIGURE.format('nan /s')}", "'nan /s'", "the unit /s"),
    (f"gpus_per_node: 8\nhost_memory: {FIGURE.format('512')}", "'512'", "GiB"),
    (f"gpus_per_node: 8\nhost_link: {FIGURE.format('20 GB/s')}", "host_link and no gpu", "gpu: a100-80gb"),
    (f"gpus_per_node: 8\nhop: {FIGURE.format('1e9 s')}", "node.yaml, line 2, hop: found '1e9 s'", "1e-09 to 1 s"),
    (f"gpus_per_node: 8\n\nhost_adam: {FIGURE.format('3 /s')}", "line 3, host_adam: found '3 /s'", "1e+06 to 1e+12 /s"),
    (f"gpus_per_node: 8\nhost_memory: {FIGURE.format('512 MB')}\nnvme: {FIGURE.format('8 kB')}", "line 3, nvme", "1e+06"),
    (f"gpus_per_node: 8\nintra_node: {FIGURE.format('450 TB/s')}", "line 2, intra_node", "1e+13 B/s"),
    (f"gpu: h200\ngpus_per_node: 8\nsustained_matmul: {FIGURE.format('640 GFLOP/s')}", "line 3, sustained", "FLOP/s"),
    ("gpus_per_node: 8\ngpu: h200\ngpus_per_node: 4", "line 3: found 'gpus_per_node' a second time", "after line 1"),
    ("gpus_per_node: 8\nhop: {value: 1e-6 s,\n  value: 2e-6 s}", "line 3: found 'value' a second time", "after line 2"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "found", "expected"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_a_malformed_file_is_one_line(zeroplan, node, text, found, expected):
    ran = zeroplan("estimate", "--params", "7B", "--cluster", node(text))
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert found in ran.err
    assert expected in ran.err
    assert len(ran.err) < 500


@pytest.mark.parametrize("name", presets.names("cluster"))
def test_every_preset_is_within_the_bounds_of_a_file(node, name):
    text = (presets.PRESETS / "clusters" / f"{name}.json").read_text()
    for file in ("node.json", "node.yaml"):  # JSON is YAML
        assert hardware.cluster(node(text, file)).gpu == hardware.cluster(name).gpu


def test_json_with_tabs(node):
    """Which YAML does not take."""
    assert hardware.cluster(node('{\n\t"gpu": "a100-80gb",\n\t"gpus_per_node": 2\n}\n', "node.json")).gpus_per_node == 2


@pytest.mark.parametrize(("text", "found"), [
    ('{"gpus_per_node" 8}', "node.json:1:18: found text that is not JSON"), ("", "an empty file"), ("[8]", "expected a node"),
    ('{"gpus_per_node": 8, "gpus_per_node": 4}', "'gpus_per_node' twice"),
    ('{\n"gpus_per_node": 8,\n"hop": {"value": "1e9 s", "source": "s", "date": "2026-11-24", "evidence": "measured"}}',
     "node.json, line 3, hop: found '1e9 s'"),
])  # fmt: skip
def test_json_that_is_refused(zeroplan, node, text, found):
    ran = zeroplan("estimate", "--params", "7B", "--cluster", node(text, "node.json"))
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert found in ran.err


def test_what_an_alias_repeats_is_no_second_time(node):
    text = f"gpus_per_node: 8\nintra_node: &link {FIGURE.format('20 GB/s')}\ninter_node: *link\n"
    assert hardware.cluster(node(text)).inter_node.value == 20e9


def test_a_file_that_is_none(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.yaml").mkdir()
    for name, found in (("folder.yaml", "a folder"), ("absent.yaml", "no such file"), ("node", "unknown cluster")):
        ran = zeroplan("estimate", "--params", "7B", "--cluster", name)
        assert (ran.code, ran.out) == (2, "")
        assert found in ran.err
        assert len(ran.err.splitlines()) == 1
