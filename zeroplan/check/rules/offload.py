"""5xx: offloading and asynchronous I/O that do not do what they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.rules.values import BF16
from zeroplan.check.subject import Subject

ZERO = "zero_optimization"
OPTIMIZER, PARAM = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
STATES_OF_ADAM = 4
NVME = ', "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"%s}'

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP501", WARNING, "Parameters offloaded below stage 3", "run: they stay on the GPU without a word",
        example(STAGE_2 % ', "offload_param": {"device": "cpu"}'),
        example(STAGE_3 % ', "offload_param": {"device": "cpu"}'),
    ),
    Rule(
        "ZP502", WARNING, "An optimizer offloaded without ZeRO", "run: nothing is divided and nothing moves",
        example(BF16 % ', "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}'),
        example(STAGE_2 % ', "offload_optimizer": {"device": "cpu"}'),
    ),
    Rule(
        "ZP505", WARNING, "NVMe at stages 1 and 2", "run: states stay in host memory; only stage3.py swaps to disk",
        example(STAGE_2 % (NVME % "")), example(STAGE_3 % (NVME % "")),
    ),
    Rule(
        "ZP509", WARNING, "Fewer buffers than Adam has states", "runtime/zero/offload_config.py:buffer_count",
        example(STAGE_3 % (NVME % ', "buffer_count": 3')), example(STAGE_3 % (NVME % ', "buffer_count": 4')),
    ),
    Rule(
        "ZP511", ADVICE, "aio without a disk to use it", "runtime/swap_tensor is used by NVMe devices only",
        example(STAGE_3[:-1] % "" + ', "aio": {"queue_depth": 32}}'),
        example(STAGE_3[:-1] % (NVME % "") + ', "aio": {"queue_depth": 32}}'),
    ),
    Rule(
        "ZP513", ERROR, "GPUDirect Storage without CUDA", "runtime/swap_tensor/aio_config.py:get_aio_config",
        example(BF16 % ', "aio": {"use_gds": true}', accelerator="cpu"),
        example(STAGE_3[:-1] % (NVME % "") + ', "aio": {"use_gds": true}}'), since="0.15.0",
    ),
    Rule(
        "ZP517", WARNING, "PyTorch's Adam with an offloaded optimizer", "runtime/engine.py:get_optimizer_configuration",
        example((STAGE_2 % ', "offload_optimizer": {"device": "cpu"}')[:-1]
                + ', "optimizer": {"type": "AdamW", "params": {"lr": 0.0001, "torch_adam": true}}}'),
        example((STAGE_2 % ', "offload_optimizer": {"device": "cpu"}')[:-1]
                + ', "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}}}'),
    ),
    Rule(
        "ZP518", WARNING, "SuperOffload below stage 3", "run: ignored without a word",
        example(STAGE_2 % ', "offload_optimizer": {"device": "cpu", "super_offload": true}'),
        example(STAGE_3 % ', "offload_optimizer": {"device": "cpu", "super_offload": true}'), since="0.18.0",
    ),
)  # fmt: skip


def idle_offload(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    stage = facts.stage
    optimizer, param = (facts(f"{path}.device") for path in (OPTIMIZER, PARAM))
    if param != "none" and stage < 3:
        yield Hit("ZP501", subject.spelled(PARAM),
                  f"offload_param does nothing at stage {stage}: parameters stay on the GPU",
                  '"stage": 3, or delete it')  # fmt: skip
    if optimizer != "none" and stage == 0:
        yield Hit("ZP502", subject.spelled(OPTIMIZER), "offload_optimizer moves nothing at stage 0", '"stage": 1')
    if optimizer == "nvme" and stage in (1, 2):
        yield Hit("ZP505", subject.spelled(f"{OPTIMIZER}.device"),
                  f"nvme at stage {stage} is as cpu: states stay in host "
                  "memory", '"device": "cpu", or "stage": 3')  # fmt: skip
    if optimizer == "nvme" and stage == 3 and facts(f"{OPTIMIZER}.buffer_count") < STATES_OF_ADAM:
        yield Hit("ZP509", subject.spelled(f"{OPTIMIZER}.buffer_count"),
                  "Adam swaps four tensors per parameter, and needs "
                  "a buffer for each", f'"buffer_count": {STATES_OF_ADAM}')  # fmt: skip
    if facts(f"{OPTIMIZER}.super_offload") and stage < 3:
        yield Hit("ZP518", subject.spelled(f"{OPTIMIZER}.super_offload"),
                  f"super_offload does nothing at stage {stage}",
                  '"stage": 3')  # fmt: skip


def slow_adam(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.offloads_optimizer and facts.stated("optimizer.params.torch_adam"):
        yield Hit("ZP517", subject.spelled("optimizer.params.torch_adam"),
                  "PyTorch's Adam steps on the host, several times "
                  "slower than DeepSpeed's", "delete it")  # fmt: skip


def asynchronous_io(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if not facts.section("aio"):
        return
    if facts.stated("aio.use_gds") and subject.setting.accelerator != "cuda":
        yield Hit("ZP513", ("aio", "use_gds"), "use_gds on another device than CUDA: DeepSpeed refuses that",
                  '"use_gds": false')  # fmt: skip
    if "nvme" not in (facts(f"{OPTIMIZER}.device"), facts(f"{PARAM}.device")):
        yield Hit("ZP511", ("aio",), "aio without a device nvme does nothing", "delete it")


CHECKS = (idle_offload, slow_adam, asynchronous_io)
