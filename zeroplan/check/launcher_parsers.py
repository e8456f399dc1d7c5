"""Options of deepspeed, torchrun and accelerate launch, and what each refuses of its own.

As deepspeed 0.19.8 (launcher/runner.py), torch 2.14 (distributed/run.py) and accelerate 1.15 (commands/launch.py) have
them, and those that releases since 0.14, 2.0 and 0.21 had beside them.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, NoReturn

from zeroplan.check.finding import said
from zeroplan.check.shell_variables import UNKNOWN, Word


class _Options(NamedTuple):
    """Names of a launcher's options, without their dashes."""

    flags: str
    texts: str
    numbers: str = ""
    fractions: str = ""
    choices: Mapping[str, tuple[str, ...]] = {}
    short: Mapping[str, str] = {}
    """Letters, and the option that each stands for."""
    dashes: bool = False
    """Whether - is taken for _ in their names."""
    beginnings: bool = True
    """Whether the beginning of a name is taken for it (argparse's allow_abbrev)."""


FLAGS_OF_RUNNER = (
    "module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid bind_cores_to_rank quiet elastic_training"
)
PRECISIONS = ("no", "fp16", "bf16", "fp8")
OPTIONS = {
    "deepspeed": _Options(
        FLAGS_OF_RUNNER, "hostfile include exclude master_addr launcher launcher_args enable_each_rank_log "
        "bind_core_list venv_script",
        "num_nodes num_gpus num_accelerators master_port node_rank ssh_port min_elastic_nodes max_elastic_nodes",
        choices={"autotuning": ("tune", "run"), "log_level": ("debug", "info", "warning", "error", "critical")},
        short={"H": "hostfile", "i": "include", "e": "exclude", "q": "quiet"},
    ),
    "torchrun": _Options(
        "standalone module no_python run_path virtual_local_rank use_env",
        "nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf "
        "event_log_handler role log_dir redirects tee log_line_prefix_template local_ranks_filter master_addr "
        "local_addr duplicate_stdout_filters duplicate_stderr_filters logs_specs signals_to_handle print_completion",
        "max_restarts node_rank master_port shutdown_timeout", "monitor_interval",
        choices={
            "start_method": ("spawn", "fork", "forkserver"),
            "numa_binding": ("node", "socket", "exclusive", "core-complex"),
        },
        short={"m": "module", "r": "redirects", "t": "tee"}, dashes=True,
    ),
    "accelerate": _Options(
        "quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic use_deepspeed use_fsdp "
        "dynamo_use_regional_compilation use_parallelism_config use_megatron_lm same_network module no_python debug "
        "tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval ipex use_xpu use_tp",
        "config_file gpu_ids main_process_ip tee log_dir role rdzv_backend rdzv_conf vm env main_training_function "
        "deepspeed_config_file offload_optimizer_device offload_param_device offload_optimizer_nvme_path "
        "offload_param_nvme_path zero3_init_flag zero3_save_16bit_model deepspeed_hostfile deepspeed_exclusion_filter "
        "deepspeed_inclusion_filter deepspeed_multinode_launcher deepspeed_moe_layer_cls_names fsdp_offload_params "
        "fsdp_sharding_strategy fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap "
        "fsdp_backward_prefetch fsdp_backward_prefetch_policy fsdp_state_dict_type fsdp_forward_prefetch "
        "fsdp_use_orig_params fsdp_cpu_ram_efficient_loading fsdp_sync_module_states fsdp_activation_checkpointing "
        "fsdp_activation_checkpointing_offload megatron_lm_sequence_parallelism megatron_lm_recompute_activations "
        "megatron_lm_use_distributed_optimizer megatron_lm_recompute_granularity megatron_lm_recompute_method "
        "megatron_lm_attention_backend megatron_lm_attention_softmax_in_fp32 megatron_lm_calculate_per_token_loss "
        "megatron_lm_use_rotary_position_embeddings megatron_lm_use_custom_fsdp megatron_lm_no_load_optim "
        "megatron_lm_eod_mask_loss megatron_lm_overlap_cpu_optimizer_d2h_h2d megatron_lm_no_save_optim "
        "megatron_lm_optimizer_cpu_offload megatron_lm_use_precision_aware_optimizer aws_access_key_id "
        "aws_secret_access_key mpirun_hostfile mpirun_ccl parallelism_config_cp_comm_strategy "
        "parallelism_config_sp_seq_length parallelism_config_sp_attn_implementation "
        "parallelism_config_sp_seq_length_is_variable fp8_override_linear_precision fp8_enable_fsdp_float8_all_gather "
        "fp8_pad_inner_dim",
        "num_processes num_machines num_cpu_threads_per_process machine_rank main_process_port max_restarts zero_stage "
        "gradient_accumulation_steps fsdp_min_num_params megatron_lm_tp_degree megatron_lm_pp_degree "
        "megatron_lm_decoder_last_pipeline_num_layers megatron_lm_num_micro_batches megatron_lm_recompute_num_layers "
        "megatron_lm_expert_model_parallel_size megatron_lm_context_parallel_size "
        "megatron_lm_expert_tensor_parallel_size fp8_margin fp8_interval fp8_amax_history_len tp_size "
        "parallelism_config_dp_replicate_size parallelism_config_dp_shard_size parallelism_config_tp_size "
        "parallelism_config_cp_size parallelism_config_sp_size",
        "monitor_interval gradient_clipping megatron_lm_gradient_clipping megatron_lm_attention_dropout "
        "megatron_lm_hidden_dropout",
        choices={
            "mixed_precision": PRECISIONS, "fsdp_version": ("1", "2"), "fp8_backend": ("ao", "te", "msamp"),
            "fp8_format": ("HYBRID", "E4M3", "E5M2"), "fp8_amax_compute_algo": ("max", "most_recent"),
            "fp8_opt_level": ("O1", "O2"), "parallelism_config_cp_backend": ("torch",),
            "parallelism_config_sp_backend": ("deepspeed",),
            "dynamo_mode": ("default", "reduce-overhead", "max-autotune"),
            "dynamo_backend": (
                "no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi",
                "fx2trt", "onnxrt", "tensorrt", "aot_torchxla_trace_once", "torhchxla_trace_once", "tvm",
            ),
        },
        short={"q": "quiet", "m": "module", "t": "tee"}, dashes=True, beginnings=False,
    ),
}  # fmt: skip
"""By launcher."""
RANKS = {"deepspeed": "num_gpus", "torchrun": "nproc_per_node", "accelerate": "num_processes"}
"""How each is given the number of its processes."""
UNRECOGNIZED, SPELLINGS = "unrecognized arguments: ", re.compile(r"^argument ([^:/ ]+)[^:]*:")


class _RefusalError(Exception):
    """What a parser does not take."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusalError(message)


def _whole(text: str) -> str:
    return _number(text, int, "whole number")


def _fraction(text: str) -> str:
    return _number(text, float, "number")


def _one_of(chosen: Sequence[str], text: str) -> str:
    if text not in chosen and UNKNOWN not in text:
        raise argparse.ArgumentTypeError(f"{said(text)}, none of {', '.join(chosen)}")
    return text


def _number(text: str, kind: Callable[[str], object], what: str) -> str:
    if UNKNOWN not in text:
        try:
            kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{said(text)} is no {what}") from None
    return text


class Parsed(NamedTuple):
    """A launcher's own options as its parser has them."""

    options: Mapping[str, str | None]
    """By their whole names; None where the value is not known."""
    is_whole: bool = False
    """Whether every option of the line is among them."""
    script: int | None = None
    """Which of the words is the script, or the module that is run as one; None where that is not known."""
    refusal: str = ""
    """What the parser says where it takes none."""
    instead: str = ""
    """The option that is nearest to one that it does not know."""


def parsed(launcher: str, words: Sequence[Word]) -> Parsed:
    """`words`: what follows the launcher, up to its end; of another launcher nothing is known."""
    if launcher not in OPTIONS:
        return Parsed({})
    texts = [word.pieces for word in words]
    try:
        stated = vars(_parser(launcher).parse_args(texts))
    except _RefusalError as error:
        message = SPELLINGS.sub(r"\1:", str(error).replace(UNKNOWN, "..."))
        _, match, several = message.partition(" could match ")
        if match and len({name.replace("-", "_") for name in several.split(", ")}) == 1:
            return Parsed({})  # two spellings of one option: Python 3.10 to 3.13.0 refuse that, others were not run
        unknown = message.removeprefix(UNRECOGNIZED).split()[0] if message.startswith(UNRECOGNIZED) else ""
        return Parsed({}, refusal=message, instead=_nearest(launcher, unknown) if unknown else "")
    options = {name: value for name, value in stated.items() if value not in (None, False)}
    script, given = options.pop("script", UNKNOWN), options.pop("given", [])
    texts_of = {name: None if UNKNOWN in str(value) else str(value) for name, value in options.items()}
    is_whole = UNKNOWN not in script
    return Parsed(texts_of, is_whole=is_whole, script=len(texts) - len(given) - 1 if is_whole else None)


def _nearest(launcher: str, unknown: str) -> str:
    """The option that stands for one of another launcher, or is spelled most like it."""
    name = unknown.lstrip("-").replace("-", "_").partition("=")[0]
    names = _names(OPTIONS[launcher])
    near = [RANKS[launcher]] if name in RANKS.values() else difflib.get_close_matches(name, names, 1)
    return f"--{near[0]}" if near else ""


def _names(options: _Options) -> list[str]:
    return [*f"{options.flags} {options.texts} {options.numbers} {options.fractions}".split(), *options.choices]


@cache
def _parser(launcher: str) -> _Parser:
    options = OPTIONS[launcher]
    parser = _Parser(add_help=False, allow_abbrev=options.beginnings)
    letters: dict[str, list[str]] = {}
    for letter, name in options.short.items():
        letters.setdefault(name, []).append(f"-{letter}")
    flags, numbers, fractions = options.flags.split(), options.numbers.split(), options.fractions.split()
    for name in _names(options):
        spellings = dict.fromkeys([*letters.get(name, ()), f"--{name}", f"--{name.replace('_', '-')}"])
        taken = [one for one in spellings if options.dashes or "-" not in one.lstrip("-")]
        if name in flags:
            parser.add_argument(*taken, dest=name, action="store_true")
        else:
            kind: Callable[[str], str] = _whole if name in numbers else _fraction if name in fractions else str
            chosen = options.choices.get(name)
            parser.add_argument(*taken, dest=name, type=kind if chosen is None else partial(_one_of, chosen))
    parser.add_argument("script")
    parser.add_argument("given", nargs=argparse.REMAINDER)
    return parser
