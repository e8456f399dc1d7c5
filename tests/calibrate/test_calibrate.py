"""What calibrate measures without a GPU, the file it writes, and its torch code on the CPU where torch is there."""

from __future__ import annotations

import importlib.util
import os
import sys
from math import sqrt
from pathlib import Path

import pytest
import yaml

from zeroplan.calibrate import disk, findings, host, measure, node, ring
from zeroplan.catalog import hardware

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="no torch here")
SMALL = 16 * disk.BLOCK


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """No torch, a small file, and a folder of one's own."""
    monkeypatch.setattr(disk, "QUICK_SIZE", SMALL)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        measure.importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest)
    )
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_disk_is_written_whole_read_whole_and_left_clean(tmp_path, monkeypatch):
    moved = {"pwrite": 0, "preadv": 0}
    for name in moved:
        real = getattr(os, name)

        def counted(*arguments, real=real, name=name):
            size = real(*arguments)
            moved[name] += size
            return size

        monkeypatch.setattr(os, name, counted)
    rates = disk.measure(str(tmp_path), SMALL)
    assert moved == {"pwrite": SMALL, "preadv": SMALL}
    assert rates.read > 0
    assert rates.write > 0
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_found_again_in_the_seconds_it_gives():
    """x/l + H + sqrt(H x/l), worked out by hand for 8 ranks, 25 us of latency and 232 GB/s."""
    wire, latency, link = 2 * (1 << 30) * 7 / 8, 25e-6, 232e9
    seconds = wire / link + latency + sqrt(latency * wire / link)
    assert ring.link_of(seconds, wire, latency) == pytest.approx(link)
    sweep = ring.Sweep("all_reduce", 8, {8192: latency, 1 << 30: seconds})
    assert sweep.link == pytest.approx(link)
    assert sweep.hop == pytest.approx(latency / 14)
    gathered = ring.Sweep("all_gather", 8, {8192: latency, 1 << 30: seconds})
    assert gathered.hop == pytest.approx(latency / 7)


def test_seconds_are_the_median(monkeypatch):
    ticks = iter([0.0, 0.0, 1.0, 1.0, 3.0, 3.0, 10.0, 10.0])
    monkeypatch.setattr(findings.time, "perf_counter", lambda: next(ticks))
    assert findings.timed(lambda: None, lambda: None, seconds=0.0, least=3) == 2.0


def test_without_torch_host_and_disk_are_measured(zeroplan, quick):
    ran = zeroplan("calibrate", "--quick", "--json", "-o", "node.yaml")
    assert ran.code == 0, ran.err
    figures = {figure["field"]: figure for figure in ran.json["figures"]}
    assert set(figures) == {"host_memory", "nvme", "nvme_read", "nvme_write"}
    assert figures["host_memory"]["value"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert "no torch here; pip install torch" in ran.json["left_out"][0]
    cluster = hardware.cluster("node.yaml")
    assert cluster.gpu is None
    assert cluster.nvme_read.value == pytest.approx(figures["nvme_read"]["value"], rel=1e-3)
    assert cluster.nvme_read.evidence == "measured"
    assert cluster.nvme_read.date == ran.json["date"]
    assert "8 threads" in cluster.nvme_read.source
    text = Path("node.yaml").read_text()
    assert "gpus_per_node" not in yaml.safe_load(text)  # no GPU was found, and none is stated
    assert "# gpus_per_node: no GPU was found; write how many there are" in text
    read = zeroplan("estimate", "--params", "1B", "--stage", "2", "--cluster", "node.yaml", "--json").json
    assert read["cluster"]["gpus"] == 1
    assert "1 GPU (--gpus)" in read["assumed"]
    assert read["fit"]["host"]["capacity"] == pytest.approx(figures["host_memory"]["value"], rel=1e-3)
    wide = zeroplan("estimate", "--params", "1B", "--stage", "2", "--cluster", "node.yaml", "--gpus", "16", "--json").json
    assert (wide["cluster"]["nodes"], wide["cluster"]["gpus_per_node"]) == (2, 8)
    assert "nodes of 8 GPUs (--gpus 2x8)" in wide["assumed"]
    screen = zeroplan("calibrate", "--quick")
    assert "nvme_read" in screen.out
    assert "left out: CPU Adam" in screen.out
    assert os.listdir() == ["node.yaml"]


def test_a_file_is_replaced_only_when_asked(zeroplan, quick):
    Path("node.yaml").write_text("mine\n")
    ran = zeroplan("calibrate", "--quick", "-o", "node.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "--force" in ran.err
    assert Path("node.yaml").read_text() == "mine\n"
    assert zeroplan("calibrate", "--quick", "-o", "node.yaml", "--force").code == 0
    assert hardware.cluster("node.yaml").nvme


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (("-o", "node.json"), ("'node.json'", "-o node.yaml")),
        (("-o", ""), ("-o node.yaml",)),
        (("-o", "absent/node.yaml"), ("absent/node.yaml", "found no folder 'absent'")),
        (("--disk", "absent"), ("--disk absent", "no such file")),
        (("--disk", "file"), ("--disk file", "not a directory")),
    ],
)
def test_bad_input_is_one_line(zeroplan, quick, options, fragments):
    Path("file").touch()
    ran = zeroplan("calibrate", "--quick", *options)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    for fragment in fragments:
        assert fragment in ran.err


def test_a_full_disk_is_refused(zeroplan, quick, monkeypatch):
    monkeypatch.setattr(disk, "QUICK_SIZE", 1 << 60)
    ran = zeroplan("calibrate", "--quick")
    assert ran.code == 2
    assert "MiB free" in ran.err


def test_other_ranks_measure_no_host_and_say_nothing(zeroplan, quick, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    ran = zeroplan("calibrate", "--quick", "--json", "-o", "node.yaml")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert os.listdir() == []


def test_the_file_of_a_machine_with_cards(tmp_path):
    """Written from findings as a GPU would give them, and read as --cluster does."""
    made = findings.Findings()
    made.gpu, made.gpus_per_node = "a100-80gb", 4
    made.add("sustained_matmul", 251.3e12, "FLOP/s", 'torch.mm: "large"')
    made.add("memory_bandwidth", 1.7e12, "B/s", "copy")
    made.add("host_link", 24.5e9, "B/s", "copies")
    made.add("hop", 3.4e-6, "s", "all_reduce")
    made.add("intra_node", 232e9, "B/s", "all_gather")
    made.add("host_adam", 4.3e9, "/s", "DeepSpeedCPUAdam")
    made.add("host_memory", 2048 * 2**30, "B", "MemTotal")
    made.observations.append("bf16: fast")
    path = tmp_path / "node.yaml"
    path.write_text(node.text(made))
    cluster = hardware.cluster(str(path))
    assert (cluster.gpu.name, cluster.gpus_per_node, cluster.host_memory) == ("a100-80gb", 4, 2048 * 2**30)
    assert cluster.gpu.sustained_matmul.value == 251.3e12
    assert cluster.gpu.sustained_matmul.source.endswith('torch.mm: "large"')
    assert (cluster.hop.value, cluster.intra_node.value, cluster.host_adam.value) == (3.4e-6, 232e9, 4.3e9)
    made.gpu = None
    path.write_text(node.text(made))
    unknown = hardware.cluster(str(path))
    assert unknown.gpu is None
    assert "# sustained_matmul:" in path.read_text()
    assert yaml.safe_load(path.read_text())["gpus_per_node"] == 4


@pytest.mark.parametrize(
    ("title", "preset"),
    [  # as torch.cuda.get_device_name prints them
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"), ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"), ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("Tesla T4", "t4"),
        ("NVIDIA H200", "h200"), ("A card nobody knows", None),
    ],
)  # fmt: skip
def test_cards_are_known_by_the_names_torch_gives(title, preset):
    from zeroplan.calibrate import card

    assert card.preset_of(title) == preset


@needs_torch
def test_adam_on_the_cpu_says_what_stands_in(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    monkeypatch.setattr(host, "QUICK_UPDATED", 1 << 16)
    made = findings.Findings()
    host.adam(made, quick=True)
    assert made.figures[0].field == "host_adam"
    assert made.figures[0].how.startswith("torch.optim.Adam(fused=True)")
    assert "in place of DeepSpeedCPUAdam" in made.figures[0].how


@needs_torch
def test_the_card_s_code_runs_with_the_cpu_for_a_card():
    from zeroplan.calibrate import card

    made = findings.Findings()
    card.products(made, "cpu", quick=True, shapes=((64, 64, 64),))
    card.memory(made, "cpu", quick=True, size=1 << 16)
    card.host_link(made, "cpu", quick=True, size=1 << 16)
    assert [figure.field for figure in made.figures] == ["sustained_matmul", "memory_bandwidth", "host_link"]
    assert len(made.observations) == 1 + 4
    assert all(figure.value > 0 for figure in made.figures)


def _one_of_two(rank: int, folder: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    os.environ |= {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"}
    sweeps = ring.measure("cpu", quick=True, sizes=(8192, 1 << 20))
    made = findings.Findings()
    ring.keep(made, sweeps, "gloo")
    assert [figure.field for figure in made.figures] == ["all_reduce", "hop", "intra_node"]
    assert [list(sweep.seconds) for sweep in sweeps] == [[8192, 1 << 20]] * 2
    dist.destroy_process_group()
    Path(folder, str(rank)).write_text("done")


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_two_ranks_sweep_collectives(tmp_path):
    import torch.multiprocessing as processes

    processes.spawn(_one_of_two, (str(tmp_path),), nprocs=2)
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text() == "done"
