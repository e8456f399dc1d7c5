"""What DeepSpeed 0.19.8 refuses, zeroplan refuses in one line; a neighbour of each that DeepSpeed takes, it takes.

Where DeepSpeed is installed, its own parser is asked about all of them; what only its engine refuses is marked so.
"""

from __future__ import annotations

import copy
import os

import pytest

from zeroplan.deepspeed.keys.removed import REMOVED_KEYS, REMOVED_OPTIMIZERS
from zeroplan.deepspeed.names import canonical
from zeroplan.deepspeed.read import autos, read_config
from zeroplan.deepspeed.refusals import REFUSALS
from zeroplan.deepspeed.refusals_optimizer import REFUSALS as OPTIMIZER_REFUSALS
from zeroplan.deepspeed.refusals_precision import REFUSALS as PRECISION_REFUSALS
from zeroplan.deepspeed.refusals_zenflow import REFUSALS as ZENFLOW_REFUSALS
from zeroplan.errors import ZeroplanError
from zeroplan.sources import DEEPSPEED

PARSER, ENGINE = "parser", "engine"
CPU, NVME, AT = {"device": "cpu"}, {"device": "nvme"}, "/local_nvme"


def zero(stage, **keys):
    return {"zero_optimization": {"stage": stage, **keys}}


def optimizer(kind, **params):
    return {"optimizer": {"type": kind, "params": params}}


def schedule(kind, **params):
    return {"scheduler": {"type": kind, "params": params}}


def flow(stage=2, keys=None, **zenflow):
    """ZenFlow with an offloaded optimizer; `keys` stand beside it."""
    return zero(stage, offload_optimizer=CPU, zenflow={"update_interval": 2, **zenflow}, **(keys or {}))


def clipping(size, document):
    return {"gradient_clipping": size, **document}


MASTERS = {"enabled": True, "bf16_master_weights_and_grads": True}
FP16_MASTERS = {"enabled": True, "fp16_master_weights_and_grads": True}
UNTESTED = {"zero_allow_untested_optimizer": True}
NO_NORM = {"compute_grad_norm": False}
AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}


def sampling(**keys):
    return {"data_efficiency": {"data_sampling": keys}}


BF16_FP32 = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}

# who refuses, what is refused, a word of the message, a neighbour that is taken
ROWS = [
    (
        PARSER, sampling(dynamic_batching={"enabled": True}), "max_tokens",
        sampling(dynamic_batching={"enabled": True, "max_tokens": 4096}),
    ),
    (
        PARSER, sampling(curriculum_learning={"enabled": True}), "curriculum_metrics",
        sampling(curriculum_learning={"enabled": True, "curriculum_metrics": {}}),
    ),
    (PARSER, zero(2, offload_optimizer={**CPU, "ratio": 0.5}), "ratio", zero(3, offload_optimizer={**CPU, "ratio": 0.5})),
    (PARSER, zero(1, offload_optimizer={"ratio": 0.5}), "ratio", zero(1, offload_optimizer={"ratio": 1.0})),
    (
        ENGINE,
        zero(3, offload_optimizer={**CPU, "ratio": 0.5}) | optimizer("Lion"),
        "ratio",
        zero(3, offload_optimizer={**CPU, "ratio": 0.5}) | optimizer("Adam"),
    ),
    (ENGINE, zero(3, offload_optimizer=NVME), "nvme_path", zero(3, offload_optimizer={**NVME, "nvme_path": AT})),
    (ENGINE, zero(3, offload_optimizer={**NVME, "nvme_path": None}), "nvme_path", zero(2, offload_optimizer=NVME)),
    (ENGINE, zero(3, offload_param=NVME), "nvme_path", zero(3, offload_param={**NVME, "nvme_path": AT})),
    (ENGINE, zero(2, allgather_bucket_size=3), "odd", zero(3, allgather_bucket_size=3)),
    (
        ENGINE,
        {"bf16": {"enabled": True}, "optimizer": {"type": "Adam", "legacy_fusion": True}},
        "legacy_fusion",
        {"bf16": {"enabled": True}, **zero(1), "optimizer": {"type": "Adam", "legacy_fusion": True}},
    ),
    (ENGINE, zero(1, legacy_stage1=True), "legacy_stage1", zero(1, legacy_stage1=False)),
    (ENGINE, zero(2, legacy_stage1=True), "legacy_stage1", zero(0, legacy_stage1=True)),
    (PARSER, clipping(0, zero(3, **NO_NORM)), "compute_grad_norm", clipping(0, zero(2, **NO_NORM))),
    (ENGINE, zero(2, **NO_NORM), "gradient_clipping", clipping(0, zero(1, **NO_NORM))),
    (
        ENGINE,
        clipping(0, zero(1, **NO_NORM)) | BF16_FP32,
        "fp32 accumulation",
        clipping(0, zero(2, **NO_NORM)) | BF16_FP32,
    ),
    (
        ENGINE,
        clipping(0, zero(2, **NO_NORM, zenflow={}, offload_optimizer=CPU)),
        "zenflow",
        zero(2, zenflow={}, offload_optimizer=CPU),
    ),
    (
        ENGINE,
        clipping(0, zero(2, **NO_NORM, offload_optimizer=CPU)),
        "offload_optimizer",
        clipping(0, zero(2, **NO_NORM, offload_optimizer={"device": "none"})),
    ),
    (ENGINE, zero(2, zenflow={}), "zenflow", zero(2, zenflow=None)),
    (PARSER, zero(3, zenflow={"topk_ratio": 1.0}), "topk_ratio", zero(3, offload_optimizer=CPU, zenflow={"topk_ratio": 0.9})),
    (PARSER, {"gradient_allreduce_op": "sum", **zero(3)}, "sum", {"gradient_allreduce_op": "SUM", **zero(2)}),
    (
        PARSER,
        {"gradient_allreduce_op": "sum", **zero(2, zenflow={}, offload_optimizer=CPU)},
        "sum",
        {"gradient_allreduce_op": "mean", **zero(2, zenflow={}, offload_optimizer=CPU)},
    ),
    (
        PARSER,
        {"gradient_allreduce_op": "sum", "compile": {"deepcompile": True}},
        "deepcompile",
        {"gradient_allreduce_op": "sum", "compile": {"deepcompile": False}},
    ),
    (PARSER, {"gradient_allreduce_op": "avg"}, "gradient_allreduce_op", {"gradient_allreduce_op": "Mean"}),
    (ENGINE, {"prescale_gradients": True, **zero(2)}, "prescale", {"prescale_gradients": True, **zero(1)}),
    (
        ENGINE,
        {"prescale_gradients": True, **zero(3)},
        "prescale",
        {"prescale_gradients": True, **zero(3, reduce_scatter=False)},
    ),
    (
        ENGINE,
        {"gradient_predivide_factor": 2, **zero(2)},
        "predivide",
        {"gradient_predivide_factor": 2, "gradient_allreduce_op": "sum", **zero(2)},
    ),
    (ENGINE, {"gradient_predivide_factor": 2, **zero(3)}, "predivide", {"gradient_predivide_factor": 1, **zero(3)}),
    (
        ENGINE,
        zero(3, zero_quantized_gradients=True, reduce_scatter=False),
        "quantized",
        zero(3, zero_quantized_gradients=True),
    ),
    (
        ENGINE,
        {"managed_gradient_accumulation": False, **zero(1, overlap_comm=True)},
        "managed",
        {"managed_gradient_accumulation": False, **zero(2, overlap_comm=True)},
    ),
    (PARSER, {"fp16": FP16_MASTERS}, "without ZeRO", {"fp16": FP16_MASTERS, **zero(2, offload_optimizer=CPU)}),
    (PARSER, {"bf16": MASTERS}, "without ZeRO", {"bf16": MASTERS, **zero(2, offload_optimizer=CPU)}),
    (
        PARSER,
        {"bf16": {"enabled": True, "bf16_optimizer_states": True}, **zero(2)},
        "without bf16_master",
        {"bf16": {**MASTERS, "bf16_optimizer_states": True}, **zero(2)},
    ),
    (
        ENGINE,
        {"bf16": MASTERS, "fp16": {**FP16_MASTERS, "enabled": False}, **zero(2, offload_optimizer=CPU)},
        "both",
        {"bf16": MASTERS, "fp16": {"enabled": False}, **zero(2, offload_optimizer=CPU)},
    ),
    (
        ENGINE,
        {"fp16": FP16_MASTERS, **zero(2)},
        "without offload",
        {"fp16": FP16_MASTERS, **zero(3, offload_optimizer=CPU), **optimizer("AdamW")},
    ),
    (
        ENGINE,
        {"bf16": MASTERS, **zero(3)},
        "without offload",
        {"bf16": {**MASTERS, "bf16_optimizer_states": True}, **zero(3), **optimizer("AdamW")},
    ),
    (
        ENGINE,
        {"bf16": MASTERS, **zero(2, offload_optimizer=CPU), **optimizer("AdamW", torch_adam=True)},
        "DeepSpeed's Adam",
        {"bf16": MASTERS, **zero(2, offload_optimizer=CPU), **optimizer("AdamW", torch_adam=False)},
    ),
    (
        ENGINE,
        {"bf16": {"enabled": True}, "data_types": {"param_dtype": "fp16"}},
        "param_dtype",
        {"bf16": {"enabled": True}, "data_types": {"param_dtype": "torch.bfloat16"}},
    ),
    (
        ENGINE,
        {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
        "grad_accum_dtype",
        {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "float"}, **zero(1)},
    ),
    (
        ENGINE,
        {"data_types": {"grad_accum_dtype": "auto"}},
        "grad_accum_dtype",
        {"data_types": {"grad_accum_dtype": None, "keep_in_fp32_modules": "auto"}},
    ),
    (PARSER, {"torch_autocast": {"dtype": "BF16"}}, "torch_autocast", {"torch_autocast": {"dtype": "bf16"}}),
    (ENGINE, AUTOCAST | zero(3, zero_quantized_weights=True), "zero_quantized_weights", AUTOCAST | zero(3)),
    (PARSER, {"torch_autocast": {"dtype": None}}, "torch_autocast", {"torch_autocast": {"dtype": "fp32"}}),
    (PARSER, {"fp16": {"loss_scale": True}}, "loss_scale", {"fp16": {"loss_scale": 1}}),
    (
        PARSER,
        {"fp16": {"enabled": True, "loss_scale_window": 0}},
        "loss_scale_window",
        {"fp16": {"enabled": True, "loss_scale_window": 0, "loss_scale": 8}},
    ),
    (
        PARSER,
        {"fp16": {"enabled": True, "min_loss_scale": 0}},
        "min_loss_scale",
        {"fp16": {"enabled": False, "min_loss_scale": 0}},
    ),
    (
        PARSER,
        {"data_types": {"keep_in_fp32_modules": "rotary"}},
        "keep_in_fp32_modules",
        {"data_types": {"keep_in_fp32_modules": ["rotary"]}},
    ),
    (PARSER, {"checkpoint": {"tag_validation": "Loud"}}, "tag_validation", {"checkpoint": {"tag_validation": "fail"}}),
    (PARSER, {"checkpoint": {"tag_validation": None}}, "tag_validation", {"checkpoint": {}}),
    (PARSER, {"communication_data_type": "fp8"}, "communication_data_type", {"communication_data_type": "FP16"}),
    (PARSER, {"fp16": None}, "fp16", {"bf16": None}),
    (PARSER, {"bfloat16": None}, "bf16", {"bf16": {"enabled": True}, "bfloat16": None}),
    (PARSER, zero(1, round_robin_gradients="never"), "round_robin", zero(1, round_robin_gradients="off")),
    # zenflow
    (ENGINE, flow(select_interval=4), "select_strategy is auto", flow(select_strategy="step", select_interval=4)),
    (ENGINE, flow(select_strategy="step"), "select_interval is auto", flow(select_strategy="auto", select_interval="auto")),
    (ENGINE, flow(select_strategy="epoch"), "select_interval is auto", flow(select_strategy="epoch", select_interval=1)),
    (
        ENGINE,
        flow(select_strategy="step", select_interval=1),
        "under update_interval",
        flow(select_strategy="step", select_interval=2),
    ),
    (ENGINE, flow(offload=True), "without overlap_comm", flow(offload=True, keys={"overlap_comm": True})),
    (ENGINE, flow(keys={"reduce_scatter": False}), "reduce_scatter", flow(keys={"reduce_scatter": True})),
    (ENGINE, flow() | optimizer("Adagrad"), "other than Adam", flow() | optimizer("Adam")),
    (ENGINE, flow() | optimizer("Adam", bias_correction=True), "optimizer.params", flow() | optimizer("Adam", lr=1e-5)),
    (
        ENGINE,
        flow() | optimizer("AdamW", torch_adam=True),
        "optimizer.params",
        zero(2, offload_optimizer=CPU) | optimizer("AdamW", torch_adam=True),
    ),
    (
        ENGINE,
        {"bf16": MASTERS} | flow(),
        "master weights",
        {"bf16": MASTERS} | zero(2, offload_optimizer=CPU),
    ),
    (ENGINE, BF16_FP32 | flow(1), "at stage 1", BF16_FP32 | flow(2)),
    (ENGINE, BF16_FP32 | flow(overlap_step=True), "overlap_step", BF16_FP32 | flow(overlap_step=False)),
    # names
    (
        PARSER,
        zero(3, stage3_max_live_parameters=5, max_live_parameters=6),
        "one key",
        zero(3, stage3_max_live_parameters=5, max_live_parameters="auto"),
    ),
    (PARSER, zero(2, cpu_offload=False, offload_optimizer=CPU), "cpu_offload", zero(2, cpu_offload="auto", offload_optimizer=CPU)),
    (PARSER, zero(2, cpu_offload=None, offload_optimizer=None), "cpu_offload", zero(2, cpu_offload=None)),
    (PARSER, zero(3, cpu_offload_param=True, offload_param=CPU), "cpu_offload_param", zero(3, cpu_offload=True, offload_param=CPU)),
    (
        PARSER,
        zero(3, stage3_gather_fp16_weights_on_model_save=True, gather_16bit_weights_on_model_save=True),
        "gather",
        zero(3, stage3_gather_fp16_weights_on_model_save=True),
    ),
    (PARSER, zero(3, cpu_offload_params=True), "cpu_offload_params", zero(3, cpu_offload_params="auto")),
    # optimizer and scheduler
    (PARSER, {"optimizer": None}, "optimizer", {"optimizer": {"type": None}}),
    (PARSER, {"scheduler": None}, "scheduler", {"scheduler": {}}),
    (ENGINE, optimizer("Adam", max_grad_norm=1.0), "gradient_clipping", clipping(1.0, optimizer("Adam"))),
    (ENGINE, optimizer("sgd"), "SGD", optimizer("SGD", lr=0.1)),
    (
        ENGINE,
        {"fp16": {"loss_scale": 128}, **optimizer("Lamb")},
        "Lamb",
        {"fp16": {"loss_scale": 0}, **optimizer("Lamb")},
    ),
    (
        ENGINE,
        zero(2, offload_optimizer=CPU) | optimizer("lamb") | UNTESTED,
        "Lamb",
        zero(2) | optimizer("lamb") | UNTESTED,
    ),
    (ENGINE, optimizer("AdamW", momentum=0.9), "momentum", optimizer("SGD", momentum=0.9)),
    (ENGINE, optimizer("AdamW", fused=True), "fused", optimizer("AdamW", fused=True, torch_adam=True)),
    (
        ENGINE,
        zero(1) | schedule("CosineAnnealingLR", T_max=10),
        "PyTorch's",
        zero(1) | schedule("WarmupCosineLR", total_num_steps=10),
    ),
    (ENGINE, zero(1) | optimizer("SGD"), "untested", zero(0) | optimizer("SGD")),
    (ENGINE, zero(3) | optimizer("Lamb"), "untested", zero(3) | optimizer("Lamb") | UNTESTED),
    (ENGINE, zero(1) | optimizer("Adam", amsgrad=True), "amsgrad", zero(1) | optimizer("Adam", amsgrad=True, torch_adam=True)),
    (ENGINE, zero(3) | optimizer("Muon"), "reduce_scatter", zero(3, reduce_scatter=False) | optimizer("Muon")),
    (
        ENGINE,
        zero(3, reduce_scatter=False, zero_quantized_gradients=True) | optimizer("Muon"),
        "quantized",
        zero(2, zero_quantized_gradients=True) | optimizer("Muon"),
    ),
    (ENGINE, optimizer("Muon", ns_method="cubic"), "ns_method", optimizer("Muon", ns_method="standard")),
    (ENGINE, optimizer("Adam", lr="1e-4"), "optimizer.params.lr", optimizer("Adam", lr=1e-4)),
    (ENGINE, optimizer("Adam", lr=None), "optimizer.params.lr", optimizer("Adam", lr="auto")),
    (ENGINE, optimizer("Adam", betas=0.9), "betas", optimizer("Adam", betas=[0.9, 0.95])),
    (ENGINE, optimizer("OneBitAdam"), "removed", optimizer("Adam")),
    (ENGINE, optimizer("FusedAdam"), "never", optimizer("adamw")),
    (ENGINE, schedule("WarmUpLR"), "WarmUpLR", schedule("WarmupLR")),
    (ENGINE, schedule("CosineLR"), "CosineLR", schedule("CosineAnnealingLR", T_max=10)),
    (ENGINE, {"scheduler": {"type": "WarmupLR"}}, "params", {"scheduler": {"type": "WarmupLR", "params": {}}}),
    (ENGINE, schedule("WarmupDecayLR"), "total_num_steps", schedule("WarmupDecayLR", total_num_steps="auto")),
    (ENGINE, schedule("OneCycle", cycle_min_lr=0.1), "cycle_max_lr", schedule("OneCycle", cycle_min_lr=0.1, cycle_max_lr=1)),
    (ENGINE, schedule("WarmupLR", total_num_steps=10), "total_num_steps", schedule("WarmupCosineLR", total_num_steps=10)),
    (ENGINE, schedule("WarmupLR", warmup_max_lr="0.1"), "warmup_max_lr", schedule("WarmupLR", warmup_max_lr=None)),
    (ENGINE, schedule("WarmupLR", warmup_min_lr=None), "warmup_min_lr", schedule("WarmupLR", warmup_min_lr=[0, 0])),
    (ENGINE, schedule("WarmupLR", warmup_num_steps=10.0), "warmup_num_steps", schedule("WarmupLR", warmup_num_steps=10)),
    (ENGINE, schedule("LRRangeTest", lr_range_test_step_size=0), "step_size", schedule("LRRangeTest", lr_range_test_step_size=1)),
]  # fmt: skip
NAMED = [f"{number}-{row[2].replace(' ', '-')}" for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(("_by", "refused", "word", "_taken"), ROWS, ids=NAMED)
def test_refused_in_one_line(_by, refused, word, _taken):
    with pytest.raises(ZeroplanError) as caught:
        read_config(refused, "ds_config.json")
    assert word in str(caught.value)
    assert "ds_config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("_by", "_refused", "_word", "taken"), ROWS, ids=NAMED)
def test_its_neighbour_is_taken(_by, _refused, _word, taken):
    before = copy.deepcopy(taken)
    read_config(taken, "ds_config.json", planned=False)
    assert taken == before


@pytest.mark.parametrize("row", [*REFUSALS, *PRECISION_REFUSALS, *OPTIMIZER_REFUSALS, *ZENFLOW_REFUSALS], ids=lambda row: row.found[:60])
def test_each_condition_is_met_by_a_row(row):
    from zeroplan.deepspeed.facts import Facts

    def holds(document):
        try:
            return row.holds(Facts(canonical(document), "x"))
        except ZeroplanError:
            return False

    assert any(holds(refused) for _by, refused, _word, _taken in ROWS)
    assert not any(holds(taken) for *_rest, taken in ROWS)
    assert row.source.partition(".py:")[1] or ".cpp:" in row.source


@pytest.mark.parametrize("path", REMOVED_KEYS)
@pytest.mark.parametrize("value", [{}, False, None, "auto"], ids=str)
def test_removed_keys_are_refused_whatever_they_say(path, value):
    section, _, name = path.rpartition(".")
    with pytest.raises(ZeroplanError, match=f"^ds_config.json: {path} was removed from DeepSpeed"):
        read_config({section: {name: value}} if section else {name: value}, "ds_config.json")


@pytest.mark.parametrize("name", [*REMOVED_OPTIMIZERS, *map(str.lower, REMOVED_OPTIMIZERS)])
def test_removed_optimizers_are_named_as_removed(name):
    with pytest.raises(ZeroplanError, match=f"{name} was removed from DeepSpeed.*write"):
        read_config(optimizer(name), "ds_config.json")


@pytest.fixture(scope="module")
def parse():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    deepspeed = pytest.importorskip("deepspeed")
    if deepspeed.__version__ != DEEPSPEED:
        pytest.skip(f"compared with {DEEPSPEED}")
    from deepspeed.runtime import config as module

    ranks = type("Ranks", (), {"get_data_parallel_world_size": lambda _self: 1})()

    def parsed(document):
        return module.DeepSpeedConfig({"train_batch_size": 8, **copy.deepcopy(document)}, mpu=ranks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.dist, "get_rank", lambda *_args: 0)
        yield parsed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("by", "refused", "_word", "taken"), ROWS, ids=NAMED)
def test_deepspeed_says_the_same(by, refused, _word, taken, parse):
    assert parse(taken).train_batch_size == 8
    if by == ENGINE:
        parse(refused)
    else:
        with pytest.raises(Exception):  # noqa: B017, PT011 - pydantic's, assertions, AttributeErrors
            parse(refused)


ZERO_FIELDS = {
    "max_live_parameters": "max_live_parameters",
    "param_persistence_threshold": "param_persistence_threshold",
    "prefetch_bucket_size": "prefetch_bucket_size",
    "max_reuse_distance": "max_reuse_distance",
    "model_persistence_threshold": "model_persistence_threshold",
}


@pytest.mark.parametrize(("key", "field"), ZERO_FIELDS.items())
def test_aliases_of_stage_3_are_read(key, field):
    assert read_config(zero(3, **{key: 12}), "x").fields[field] == 12
    assert canonical(zero(3, **{key: 12})) == zero(3, **{f"stage3_{key}": 12})


@pytest.mark.parametrize(
    ("document", "precision"),
    [
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"bf16": None, "bfloat16": {"enabled": True}}, "bf16"),
        ({"bf16": {"enabled": False}, "bfloat16": {"enabled": True}}, "fp32"),
        ({"bfloat16": {"enabled": "auto"}}, "fp32"),
        ({"bf16": None}, "fp32"),
    ],
    ids=str,
)
def test_bfloat16_is_an_old_spelling_of_bf16(document, precision):
    """The Trainer fills "auto" under bf16 only; under bfloat16 DeepSpeed drops it."""
    assert read_config(document, "x").fields["precision"] == precision


def test_old_switches_of_offload():
    fields = read_config(
        zero(3, cpu_offload=True, cpu_offload_param="yes", cpu_offload_use_pin_memory=False), "x"
    ).fields
    assert fields["offload_optimizer"].device == fields["offload_param"].device == "cpu"
    assert fields["offload_optimizer"].pin_memory
    assert "offload_optimizer" not in read_config(zero(3, cpu_offload=False), "x").fields


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (zero(2, cpu_offload=True), zero(2, offload_optimizer=CPU)),
        (zero(2, cpu_offload=False), zero(2)),
        (zero(3, stage3_gather_fp16_weights_on_model_save=True), zero(3, stage3_gather_16bit_weights_on_model_save=True)),
        ({"zero_optimization": True, "allgather_size": 7}, zero(1, allgather_bucket_size=7)),
        ({"zero_optimization": False}, zero(0)),
        ({"bfloat16": {"enabled": True}, "mine": 1}, {"bf16": {"enabled": True}, "mine": 1}),
        (zero(3, offload_param={**CPU, "buffer_size": "auto"}), zero(3, offload_param=CPU)),
        (zero(3, reduce_bucket_size="auto"), zero(3, reduce_bucket_size="auto")),
        (zero(3, stage3_max_live_parameters="auto"), zero(3)),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, {"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}),
    ],
    ids=str,
)  # fmt: skip
def test_canonical(document, expected):
    before = copy.deepcopy(document)
    assert canonical(document) == expected
    assert document == before
    assert canonical(expected) == expected


def test_auto_that_deepspeed_itself_understands_needs_no_trainer():
    assert autos({"pipeline": {"stages": "auto"}, "data_types": {"keep_in_fp32_modules": "auto"}}) == []
    assert autos({"fp16": {"enabled": "auto"}}) == ["fp16.enabled"]


@pytest.mark.parametrize(
    ("document", "alone"),
    [
        ({"train_batch_size": 64}, True),
        ({"train_batch_size": 64, "gradient_accumulation_steps": None}, True),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, False),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"}, False),
        ({"train_micro_batch_size_per_gpu": 4}, False),
        ({"train_batch_size": "auto"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_total_alone_is_said_to_be_alone(document, alone):
    assert read_config(document, "x").total_alone is alone


@pytest.mark.parametrize("spelling", ["fp32", "float32", "float", "torch.float32"])
def test_dtypes_are_read_in_every_spelling(spelling):
    document = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": spelling}, **zero(2)}
    assert read_config(document, "x").fields["grad_accum_dtype"] == "fp32"
    assert read_config({"communication_data_type": "BF16"}, "x").fields["communication_dtype"] == "bf16"
