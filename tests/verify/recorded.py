"""Recorded runs of DeepSpeed 0.19.8 (NAME_0.19.8.json in tests/references) as jobs of ours."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tests.conftest import REFERENCES
from zeroplan.architectures.adapters import with_adapter
from zeroplan.architectures.model import model_of
from zeroplan.architectures.quantized import with_quantization
from zeroplan.architectures.read import read_config as read_model
from zeroplan.catalog.adapters import read_adapter
from zeroplan.catalog.recording import model_from_file
from zeroplan.costs.outside import outside
from zeroplan.deepspeed.read import read_config
from zeroplan.ledger import total
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model, with_frozen
from zeroplan.specs.quantization import Quantization
from zeroplan.specs.strategy import Strategy, Workload

CLIENT_OPTIMIZERS = {"AdamW": "adamw", "Adam": "adam", "SGD": "sgd", "Adagrad": "adagrad"}
NAMES = ("deepspeed", "zenflow", "liger", "recomputing", "checkpointing", "flash_attn", "bert", "autocast", "unusual", "plans",
         "waiting", "optimizers", "frozen", "adapters", "adapter_plans",
         "waiting_adapters", "families", "flash_images")  # fmt: skip
RECORDED = {name: json.loads((REFERENCES / f"{name}_0.19.8.json").read_text()) for name in NAMES}
RUNS: list[dict[str, Any]] = [{**run, "of": name} for name, found in RECORDED.items() for run in found["measured"]]
REFUSED: list[dict[str, Any]] = [run for found in RECORDED.values() for run in found["refused"]]


KEPT = 16
"""Jobs, and models, that are made once for all tests of a run; conftest.py has these follow one another."""


def job_of(case: dict[str, Any]) -> Job:
    """The job that a recorded case ran."""
    return _job_of(json.dumps(case))


@lru_cache(KEPT)
def _model_of(config: str) -> Model:
    model_type, read = read_model(json.loads(config), "case")
    return model_of(model_type, read, name="case", source="case")


@lru_cache(KEPT)
def recorded_family(name: str) -> Model:
    """The model of a recording in tests/references/families."""
    return model_from_file(REFERENCES / "families" / f"{name}.trace.json.gz", source=name)


@lru_cache(KEPT)
def _job_of(written: str) -> Job:
    case = json.loads(written)
    fields = read_config(case["ds_config"], "case").fields
    if client := case.get("optimizer"):
        momentum = "-momentum" if client.get("momentum") else ""
        fields |= {"optimizer": CLIENT_OPTIMIZERS[client["type"]] + momentum, "torch_adam": "Adam" in client["type"]}
        fields["update"] = "fused" if client.get("fused") else "single-tensor" if client.get("foreach") is False else "foreach"
    fields |= {"built_in": case.get("built_in"), "built_on": "gpu"}
    fields["kernels"] = case.get("kernels", "transformers")
    fields |= {name: case[name] for name in ("micro_batch", "checkpointing", "attention", "parameter_groups")}
    per_node = min(case["ranks_per_node"], case["world"])
    model = recorded_family(case["recording"]) if case.get("recording") else _model_of(json.dumps(case["model"]))
    if case.get("freeze"):
        model = with_frozen(model, case["freeze"], case.get("train") or ())
    if case.get("quantization"):
        model = with_quantization(model, Quantization(**{**case["quantization"], "skipped": ()}))
    if case.get("adapter"):
        wide = case.get("autocast_adapter_dtype", False)
        model = with_adapter(model, read_adapter(case["adapter"], "case")._replace(autocast_adapter_dtype=wide))
    found = Job(
        model=model,
        cluster=Cluster(nodes=case["world"] // per_node, gpus_per_node=per_node),
        workload=Workload(seq=case["seq"]),
        rank=case["rank"],
        strategy=Strategy(**{"stage": 0, **fields, "zero_init": bool(case["zero_init"])}),
    )
    if (room := case.get("gpu_memory")) is None:
        return found
    return found._replace(cluster=found.cluster._replace(capacity=room + total(outside(found))))


def label(run: dict[str, Any]) -> str:
    """What a case is about, for a test's name."""
    case = run["case"]
    zero = case["ds_config"].get("zero_optimization", {})
    offload = "+zenflow" if zero.get("zenflow") else "+offload" if zero.get("offload_optimizer") else ""
    kernels = f"+{case['kernels']}" if "kernels" in case else ""
    again = f"+{case['checkpointing']}" if case["checkpointing"] not in ("none", "full") else ""
    frozen = "+adapter" if case.get("adapter") else "+frozen" if case.get("freeze") else ""
    return f"{case['model']['model_type']}-stage{zero.get('stage', 0)}-x{case['world']}{offload}{kernels}{again}{frozen}"
