"""Small models of families that no description has: recorded, and what DeepSpeed did with them (families_0.19.8.json).

python -m tests.references.make_recorded_families FOLDER [FAMILY ...]      FOLDER/FAMILY.trace.json.gz, FAMILY.N.json, FAMILY.cpu.json
python -m tests.references.make_recorded_families --join FOLDER            FAMILY.cpu.json as families_cpu.json

Each is recorded with sdpa in 16 bit as on a GPU, models of images with flash-attention too (whose runs make_flash_runs
makes), and with eager attention in 32 as on a CPU, and run by DeepSpeed at stages 0 to 3 on the meta device
and, models of words, at stage 0 with real tensors on the CPU: batches and sequences that were not recorded, half of them
checkpointed; models of images once more with a frozen tower. The runs FAMILY.N.json are joined by make_deepspeed_reference --into families_0.19.8.json, the recordings are moved to
tests/references/families. What a model reads of its images' sizes, and what its modules keep, is left out of the runs.
A run that differs from its prediction is printed with "DIFFERS". Needs DeepSpeed and transformers.

Left out: gpt_neo, of which torch.tensor makes 4 bytes on the meta device that no mode sees; ctrl, whose buffer DeepSpeed casts
in forward; diffllama and olmo_hybrid, which make tensors on the CPU as they are built. Not recorded are recurrent_gemma and rwkv, which loop over tokens,
jetmoe, whose sizes follow from values, and big_bird, which replaces modules as it runs.
"""

import gzip
import random
import sys
import time
import warnings
from json import dumps, loads
from pathlib import Path

from transformers import CONFIG_MAPPING, logging

from tests.verify.warm import Warm
from zeroplan.catalog.recording import written
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ZeroplanError
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.specs.images import Images
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.verify.case import as_measured, case_of
from zeroplan.verify.compare import compare
from zeroplan.verify.recording import variants
from zeroplan.verify.recording.flash_package import VERSIONS
from zeroplan.verify.recording.model import config_of, recording
from zeroplan.verify.recording.variants import CPU, Way
from zeroplan.verify.task import class_of

SMALL = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 2, "vocab_size": 1000, "head_dim": 16}  # fmt: skip
BOTH = {"encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 8, "decoder_attention_heads": 8,
        "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}  # fmt: skip
EXPERTS = {"num_experts": 8, "n_routed_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "n_group": 2,
           "moe_intermediate_size": 64, "topk_group": 1}  # fmt: skip
LATENT = {"q_lora_rank": 64, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 32,
          "index_head_dim": 32, "index_n_heads": 4}  # fmt: skip
VISION = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
TEXT = {**SMALL, "model_type": "qwen2"}
QWEN_VISION = {"depth": 3, "hidden_size": 64, "num_heads": 4, "intermediate_size": 96, "patch_size": 14, "out_hidden_size": 128}
QWEN_TOKENS = {"image_token_id": 990, "video_token_id": 991, "vision_start_token_id": 992, "vision_end_token_id": 993}
MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
GLM_TOKENS = {"image_token_id": 990, "video_token_id": 991, "image_start_token_id": 992, "image_end_token_id": 993,
              "video_start_token_id": 994, "video_end_token_id": 995}  # fmt: skip
GLM_VISION = {"depth": 3, "hidden_size": 64, "num_heads": 4, "intermediate_size": 96, "patch_size": 14, "image_size": 112,
              "out_hidden_size": 128}  # fmt: skip
GLM_ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
OF_IMAGES = {
    "internvl": ({"text_config": TEXT, "image_token_id": 990, "image_seq_length": 16,
                  "vision_config": {**VISION, "image_size": [112, 112], "patch_size": [14, 14]}}, Images(1, 112, 112)),
    "llava": ({"text_config": {**SMALL, "model_type": "llama"}, "image_token_index": 990, "image_seq_length": 16,
               "vision_config": {**VISION, "model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}},
              Images(1, 56, 56)),
    "llava_next": ({"text_config": {**SMALL, "model_type": "llama"}, "image_token_index": 990,
                    "vision_config": {**VISION, "model_type": "clip_vision_model", "image_size": 56, "patch_size": 14},
                    "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]}, Images(1, 100, 80)),
    "qwen2_5_vl": ({"text_config": {**SMALL, "rope_parameters": MROPE}, **QWEN_TOKENS,
                    "vision_config": {**QWEN_VISION, "fullatt_block_indexes": [1], "window_size": 56}}, Images(1, 56, 84)),
    "qwen2_vl": ({"text_config": {**SMALL, "rope_parameters": MROPE}, **QWEN_TOKENS,
                  "vision_config": {"depth": 3, "embed_dim": 64, "num_heads": 4, "mlp_ratio": 2, "patch_size": 14,
                                    "hidden_size": 128}}, Images(2, 56, 84)),
    "qwen3_vl": ({"text_config": {**SMALL, "rope_parameters": MROPE}, **QWEN_TOKENS,
                  "vision_config": {**QWEN_VISION, "patch_size": 16, "num_position_embeddings": 64,
                                    "deepstack_visual_indexes": [0, 1]}}, Images(1, 64, 96)),
    "qwen3_5": ({"text_config": {**SMALL, "head_dim": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
                                 "linear_key_head_dim": 16, "linear_value_head_dim": 16,
                                 "rope_parameters": {**MROPE, "mrope_interleaved": True, "partial_rotary_factor": 0.5}},
                 **QWEN_TOKENS, "vision_config": {**QWEN_VISION, "patch_size": 16, "num_position_embeddings": 64}},
                Images(1, 64, 96)),
    "gemma3": ({"text_config": {**SMALL, "sliding_window": 4096}, "image_token_index": 990, "mm_tokens_per_image": 16,
                "vision_config": {**VISION, "image_size": 56, "patch_size": 14, "vision_use_head": False}}, Images(1, 56, 56)),
    "gemma4": ({"text_config": {**SMALL, "num_hidden_layers": 2, "global_head_dim": 16, "pad_token_id": 0,
                                "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                                "layer_types": ["full_attention"] * 2},
                "vision_config": {**VISION, "num_key_value_heads": 4, "head_dim": 16, "patch_size": 16,
                                  "pooling_kernel_size": 3},
                "image_token_id": 990, "video_token_id": 991, "audio_token_id": 992, "audio_config": None}, Images(1, 48, 96)),
    "paligemma": ({"text_config": {**SMALL, "model_type": "gemma"}, "image_token_index": 990, "projection_dim": 128,
                   "vision_config": {**VISION, "image_size": 56, "patch_size": 14, "vision_use_head": False,
                                     "projection_dim": 128}}, Images(1, 56, 56)),
    "mistral3": ({"text_config": {**SMALL, "model_type": "mistral", "sliding_window": None}, "image_token_index": 990,
                  "vision_config": {**VISION, "head_dim": 16, "patch_size": 14, "image_size": 224},
                  "spatial_merge_size": 2}, Images(1, 56, 112)),
    "glm4v": ({"text_config": {**SMALL, "rope_parameters": GLM_ROPE}, **GLM_TOKENS, "vision_config": GLM_VISION}, Images(2, 56, 84)),
    "glm4v_moe": ({"text_config": {**SMALL, **EXPERTS, "rope_parameters": {**GLM_ROPE, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}},
                   **GLM_TOKENS, "vision_config": GLM_VISION}, Images(1, 56, 84)),
    "exaone4_5": ({"text_config": {**SMALL, "model_type": "exaone4", "sliding_window": 4096, "sliding_window_pattern": 4}, "image_token_id": 990,
                   "video_token_id": 991, "vision_config": {**QWEN_VISION, "num_key_value_heads": 2, "fullatt_block_indexes": [1],
                                                            "window_size": 56}}, Images(1, 56, 84)),
    "kimi_k25": ({"text_config": {**SMALL, **EXPERTS, **LATENT, "num_key_value_heads": 8, "model_type": "deepseek_v3", "head_dim": 16,
                                  "first_k_dense_replace": 1, "pad_token_id": 0}, **QWEN_TOKENS,
                  "vision_config": {**VISION, "patch_size": 14, "pos_emb_height": 8, "pos_emb_width": 8}, "projection_hidden_size": 64}, Images(1, 56, 84)),
    "paddleocr_vl": ({"text_config": {**SMALL, "rope_parameters": MROPE}, **QWEN_TOKENS,
                      "vision_config": {**VISION, "patch_size": 14, "image_size": 112}}, Images(1, 56, 84)),
    "mistral_large4": ({"text_config": {**SMALL, **EXPERTS, **LATENT, "num_key_value_heads": 8}, "image_token_index": 990,
                        "vision_config": {**VISION, "head_dim": 16, "patch_size": 14, "image_size": 224}}, Images(1, 56, 112)),
    "minimax_m3_vl": ({"text_config": {**SMALL, **EXPERTS}, "image_token_index": 990, "video_token_index": 991,
                       "vision_config": {**VISION, "patch_size": 14, "image_size": 112}}, Images(1, 56, 84)),
    "smolvlm": ({"text_config": {**SMALL, "model_type": "llama", "pad_token_id": 0}, "image_token_id": 990, "scale_factor": 2,
                 "pad_token_id": 0, "vision_config": {**VISION, "image_size": 56, "patch_size": 14}}, Images(1, 112, 56)),
    "idefics3": ({"text_config": {**SMALL, "model_type": "llama", "pad_token_id": 0}, "image_token_id": 990, "scale_factor": 2,
                  "pad_token_id": 0, "vision_config": {**VISION, "image_size": 56, "patch_size": 14}}, Images(2, 56, 56)),
    "llava_onevision": ({"text_config": TEXT, "image_token_index": 990, "video_token_index": 991,
                         "vision_config": {**VISION, "image_size": 56, "patch_size": 14},
                         "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]]}, Images(1, 100, 80)),
    "lfm2_vl": ({"text_config": {**SMALL, "model_type": "lfm2", "block_auto_adjust_ff_dim": False,
                                 "layer_types": ["conv", "full_attention"] * 2}, "image_token_id": 990,
                 "projector_hidden_size": 96, "vision_config": {**VISION, "patch_size": 16, "num_patches": 64}}, Images(1, 64, 96)),
    "mllama": ({"text_config": {**SMALL, "cross_attention_layers": [1, 3], "pad_token_id": 0}, "image_token_index": 1000,
                "vision_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_global_layers": 1,
                                  "attention_heads": 4, "image_size": 56, "patch_size": 14, "max_num_tiles": 4,
                                  "vision_output_dim": 128, "intermediate_layers_indices": [1]}}, Images(1, 56, 112)),
    "glm46v": ({"text_config": {**SMALL, "rope_parameters": GLM_ROPE}, **GLM_TOKENS, "vision_config": GLM_VISION}, Images(1, 84, 56)),
    "glm_ocr": ({"text_config": {**SMALL, "rope_parameters": GLM_ROPE}, **GLM_TOKENS, "vision_config": GLM_VISION}, Images(1, 56, 112)),
    "aya_vision": ({"text_config": {**SMALL, "model_type": "cohere2", "sliding_window": 4096}, "image_token_index": 990,
                    "vision_config": {**VISION, "image_size": 56, "patch_size": 14, "vision_use_head": False}}, Images(2, 56, 56)),
    "got_ocr2": ({"text_config": TEXT, "image_token_index": 990,
                  "vision_config": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 128,
                                    "patch_size": 16, "mlp_dim": 96, "window_size": 4, "global_attn_indexes": [1],
                                    "output_channels": 32}}, Images(1, 128, 128)),
    "vipllava": ({"text_config": {**SMALL, "model_type": "llama"}, "image_token_index": 990, "image_seq_length": 16,
                  "vision_feature_layers": [-2, -1, 1],
                  "vision_config": {**VISION, "model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}},
                 Images(1, 56, 56)),
    "qwen3_vl_moe": ({"text_config": {**SMALL, **EXPERTS, "rope_parameters": MROPE}, **QWEN_TOKENS,
                      "vision_config": {**QWEN_VISION, "patch_size": 16, "num_position_embeddings": 64,
                                        "deepstack_visual_indexes": [0, 2]}}, Images(2, 64, 64)),
    "qwen3_5_moe": ({"text_config": {**SMALL, **EXPERTS, "head_dim": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
                                     "linear_key_head_dim": 16, "linear_value_head_dim": 16, "shared_expert_intermediate_size": 64,
                                     "rope_parameters": {**MROPE, "mrope_interleaved": True, "partial_rotary_factor": 0.5}},
                     **QWEN_TOKENS, "vision_config": {**QWEN_VISION, "patch_size": 16, "num_position_embeddings": 64}},
                    Images(1, 96, 64)),
}  # fmt: skip
"""What config.json says, and images that it takes."""
OF_WORDS = """
    afmoe apertus arcee bart bamba biogpt blenderbot-small camembert codegen cohere cohere2 cwm deberta deberta-v2
    deepseek_v4 distilbert doge dots1 electra ernie ernie4_5 ernie4_5_moe exaone4 falcon_h1 falcon_mamba flex_olmo gemma4_text glm glm4
    glm4_moe glm_moe_dsa granite granitemoe granitemoehybrid granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe
    jamba kimi_linear lfm2 lfm2_moe llama4_text mamba mamba2 marian mbart minimax_m2 ministral modernbert mpnet mpt mt5 nanochat
    nemotron nemotron_h olmo3 olmoe pegasus persimmon phimoe qwen3_5_text qwen3_next rembert roberta
    seed_oss smollm3 solar_open stablelm t5 umt5 vaultgemma whisper xglm xlm-roberta zamba2
""".split()
OF_TARGETS = ("t5+40", "bart+128", "mt5+224", "pegasus+72", "marian+300", "umt5+16")
"""Encoder-decoders, and tokens of their targets."""
MORE = {
    "codegen": {"rotary_dim": 8},
    "dots1": {"n_shared_experts": 1, "max_window_layers": 4},
    "kimi_linear": {
        "num_key_value_heads": 8, "linear_num_heads": 4, "linear_head_dim": 16, "num_local_experts": 4, "n_shared_experts": 1,
        "layer_types": ["linear_attention", "full_attention"] * 2, "mlp_layer_types": ["dense", *["sparse"] * 3],
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
    "mamba2": {"num_heads": 16, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 32},
    "zamba2": {
        "mamba_d_state": 16, "mamba_headdim": 16, "n_mamba_heads": 16, "mamba_ngroups": 2, "chunk_size": 32,
        "layers_block_type": ["mamba", "hybrid"] * 2, "adapter_rank": 8, "head_dim": 32,
    },
}  # fmt: skip
"""What the classes' own values do not fit."""
NOT_CHECKPOINTED = ("mpnet",)
"""supports_gradient_checkpointing is false."""
ON_THE_HOST = ("deberta", "deberta-v2")
"""Where a few bytes of numbers lie on the host, which has no memory of its own on the CPU; so it is with images, and where
stand-ins ran for kernels transformers has a loop on the CPU.
"""
NUMBER = 5
"""Runs of each."""


def content(family):
    """config.json: of a family of words the class's own values, with small sizes where it has them."""
    family = family.partition("+")[0]
    if family in OF_IMAGES:
        return {"model_type": family, **OF_IMAGES[family][0]}
    usual = CONFIG_MAPPING[family]()
    sizes = {**SMALL, **BOTH, **EXPERTS}
    if hasattr(usual, "qk_nope_head_dim"):
        sizes |= {**LATENT, "num_key_value_heads": SMALL["num_attention_heads"]}
        del sizes["head_dim"]
    if family.startswith("gemma4"):
        del sizes["head_dim"]
    found = {"model_type": family, **{name: size for name, size in sizes.items() if hasattr(usual, name)}}
    if getattr(usual, "pad_token_id", None) is not None or hasattr(usual, "pad_token_id"):
        found["pad_token_id"] = 0
    if usual.is_encoder_decoder:
        found["decoder_start_token_id"] = 0
    return found | MORE.get(family, {})


def recorded(family):
    kind = class_of(config_of(content(family), family), family)
    attention = "sdpa" if kind._supports_sdpa else "eager"
    images = OF_IMAGES[family][1] if family in OF_IMAGES else None
    flash = VERSIONS if images and kind._supports_flash_attn else ()
    ways = [*(Way(each, "bf16") for each in (attention, *flash)), Way("eager", "fp32", CPU)]
    target = family.partition("+")[2]
    sizes = InputSizes(images, int(target) if target else None)
    return recording(content(family), name=family, place=family, ways=ways, sizes=sizes)


def drawn(family, known, path):
    """Jobs of the recording: options, and whether real tensors run."""
    r = random.Random(family)
    attention, multiple = known.variants[0].attention, max(32, *[each.multiple for each in known.variants])
    batches = {batch for each in known.variants for batch in each.batches if each.batches[0] == each.batches[1] > 1}
    meta_only = bool(known.notes) or family in (*OF_IMAGES, *ON_THE_HOST)
    for number in range(NUMBER - meta_only):
        real = number == NUMBER - 1
        seq = multiple * -(-r.choice((160, 192) if real else (160, 192, 224, 352, 416)) // multiple)
        options = Options(
            model=str(path), gpus="1" if real else r.choice(("2", "4", "8", "2x8")), stage=str(0 if real else number),
            attention="eager" if real else attention, precision="fp32" if real else "bf16", seq=str(seq), micro_batch=r.choice(("1", "2") if batches or real else "123"),
            checkpointing="none" if family in NOT_CHECKPOINTED else r.choice(("none", "full")), optimizer="adamw",
        )  # fmt: skip
        job = read_request(options, default_params="7B", default_gpus=8).job()
        yield case_of(as_measured(job, real=real), None, mode="real" if real else "meta", activations=True), job, real
    if family in OF_IMAGES:
        tower = "*visual*" if any(".visual." in each.name for each in job.model.tensors) else "*vision*"
        options = options.replace(stage="3", gpus="8", checkpointing="full", freeze=[tower])
        job = read_request(options, default_params="7B", default_gpus=8).job()
        yield case_of(as_measured(job, real=False), None, mode="meta", activations=True), job, False


def main(folder, *families):
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    variants.BATCHES = (1, 2)
    with Warm() as warm:
        for family in families or (*OF_WORDS, *OF_TARGETS, *OF_IMAGES):
            path, started = Path(folder, f"{family}.trace.json.gz"), time.monotonic()
            if path.exists():
                continue
            try:
                known = recorded(family)
            except ZeroplanError as error:
                print(family, "NOT RECORDED", error, flush=True)
                continue
            path.write_bytes(gzip.compress(written(known).encode(), mtime=0))
            print(family, f"recorded in {time.monotonic() - started:.0f} s, {path.stat().st_size:,} bytes", flush=True)
            for number, (case, job, real) in enumerate(drawn(family, known, path)):
                run = warm.measure({**case, "recording": family})
                Path(folder, f"{family}.{'cpu' if real else number}.json").write_text(dumps(run))
                words = (case["ds_config"].get("zero_optimization", {}).get("stage", 0), case["micro_batch"], case["seq"],
                         case["checkpointing"], case["mode"])  # fmt: skip
                if stopped := run.get("refused") or run.get("failed"):
                    print(family, *words, "STOPPED", stopped[-300:], flush=True)
                    continue
                measured = as_measured(job, real=real)
                for row in compare(measured, ledger(measured), run):
                    if not row.holds:
                        print(family, *words, "DIFFERS", row.group, row.name, row.predicted, row.measured, flush=True)


def join(folder):
    """What the model alone saves on the CPU, and its peaks."""
    ran = [loads(path.read_text()) for path in sorted(Path(folder).glob("*.cpu.json"))]
    rows = [
        {"recording": run["case"]["recording"], "batch": run["case"]["micro_batch"], "seq": run["case"]["seq"],
         "checkpointing": run["case"]["checkpointing"], **run["activations"]}
        for run in ran if "activations" in run
    ]  # fmt: skip
    lines = ",\n".join(dumps(row) for row in rows)
    head = dumps({"versions": ran[0]["versions"], "date": max(run["date"] for run in ran)})[:-1]
    Path(__file__).with_name("families_cpu.json").write_text(f'{head}, "measured": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    (join(sys.argv[2]) if sys.argv[1] == "--join" else main(*sys.argv[1:]))
