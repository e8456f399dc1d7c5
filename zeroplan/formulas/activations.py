"""Activations: in closed form, as transformers runs a decoder layer without fused kernels; and what the model's own
operators keep and make, counted one by one.
"""

from __future__ import annotations

from zeroplan.categories import ActivationCategory


def rms_norm(t: int, h: int, w: int) -> int:
    """(4 + 2·w)·T·h + 4·T -- input and rstd in fp32, the normalized input, and the next linear's input
    [transformers models/llama/modeling_llama.py].
    """
    return (4 + 2 * w) * t * h + 4 * t


def layer_norm(t: int, h: int, w: int) -> int:
    """2·w·T·h + 8·T -- input, mean and rstd in fp32, and the next linear's input [torch native_layer_norm]."""
    return 2 * w * t * h + 8 * t


def attention_fused(t: int, q: int, kv: int, a: int, w: int) -> int:
    """2·w·(T·q + T·k) + 4·T·n -- queries, keys, values, the output and the log-sum-exp [transformers
    integrations/sdpa_attention.py].
    """
    return 2 * w * (t * q + t * kv) + 4 * t * a


def attention_eager(t: int, s: int, q: int, a: int, w: int) -> int:
    """4·w·T·q + (4 + w)·n·T·s -- as fused with keys and values repeated, and the scores' softmax in fp32 and again
    in w [transformers models/llama/modeling_llama.py].
    """
    return 4 * w * t * q + (4 + w) * a * t * s


def clamped_scores(t: int, s: int, a: int, layers: int) -> int:
    """2·L·n·T·s -- scores that OPT's attention clamped with torch.max, which keeps its input [transformers before 4.48
    models/opt/modeling_opt.py].
    """
    return 2 * layers * a * t * s


def gated_mlp(t: int, f: int, w: int) -> int:
    """4·w·T·f -- gate, its activation, up, and their product [transformers models/llama/modeling_llama.py]."""
    return 4 * w * t * f


def plain_mlp(t: int, f: int, w: int) -> int:
    """2·w·T·f -- the activation's input and output [transformers models/opt/modeling_opt.py]."""
    return 2 * w * t * f


def routed_experts(t: int, h: int, f: int, e: int, top: int, w: int) -> int:
    """w·κ·T·(2·h + 4·f) + T·(4·E + 40·κ) -- inputs, outputs and MLP of the experts a token visits, and routing
    indices [transformers integrations/moe.py].
    """
    return w * top * t * (2 * h + 4 * f) + t * (4 * e + 40 * top)


def layers_saved(layer_bytes: int, layers: int) -> int:
    """L·A -- what each layer keeps for backward, all layers [transformers models]."""
    return layers * layer_bytes


def checkpoints(t: int, h: int, layers: int, w: int) -> int:
    """L·w·T·h -- each layer's input, from which backward recomputes it [torch utils/checkpoint.py]."""
    return layers * w * t * h


def layer_gradients(t: int, f: int, h: int, w: int) -> int:
    """w·T·(2·f + 2·h) -- gradients of activations in flight inside one layer [zeroplan]."""
    return w * t * (2 * f + 2 * h)


def head_input(t: int, h: int, w: int) -> int:
    """(4 + 2·w)·T·h + 4·T -- what the final norm and the head keep [transformers models/llama/modeling_llama.py]."""
    return (4 + 2 * w) * t * h + 4 * t


def logits(t: int, v: int, logit_bytes: int) -> int:
    """λ·T·D -- logits, their fp32 copy and log-probabilities, gradients [transformers loss/loss_utils.py]."""
    return logit_bytes * t * v


# fmt: off
one_layer = ActivationCategory("one layer", "torch utils/checkpoint.py",
    "the layer that backward has recomputed")

# kept for backward
linear_layers = ActivationCategory("linear layers", "torch derivatives.yaml mm, addmm",
    "inputs of linear layers, each once, kept for the weights' gradients")
norms = ActivationCategory("norms", "transformers models",
    "inputs of norms, in fp32 where the model makes such a copy, and their deviations")
attention = ActivationCategory("attention", "transformers integrations/sdpa_attention.py",
    "queries, keys, values, and the scores' softmax or the log-sum-exp of a fused kernel")
flash_attention = ActivationCategory("flash attention", "flash-attn flash_attn_interface.py",
    "queries, keys, values, the output and a log-sum-exp of each row in fp32")
activation_functions = ActivationCategory("activation functions", "transformers activations.py",
    "what activation functions keep: their input or their result")
products = ActivationCategory("products", "torch derivatives.yaml mul",
    "factors of products element by element: gates, normalized inputs, cosines")
dropout = ActivationCategory("dropout", "torch ATen/native/Dropout.cpp",
    "masks of dropout, one byte an element on CUDA")
experts = ActivationCategory("experts", "transformers integrations/moe.py",
    "tokens gathered by expert, what their products keep, and the router's indices")
logits_and_loss = ActivationCategory("logits and loss", "transformers loss/loss_utils.py",
    "log-probabilities in fp32, and labels")
inputs_of_layers = ActivationCategory("inputs of layers", "torch utils/checkpoint.py",
    "inputs of checkpointed layers, on one GPU of a tensor-parallel group",
    note="partition_activations leaves S/τ on each of τ ranks, and brings S back in a layer's backward; with τ = 1 it "
    "keeps a copy of the whole, 4 bytes in place of what it copied, and saves nothing (DeepSpeed "
    "runtime/activation_checkpointing/checkpointing.py). cpu_checkpointing alone leaves the last two there.")

# kept for backward by Liger's kernels
liger_norms = ActivationCategory("Liger norms", "Liger ops/rms_norm.py",
    "inputs of norms in the model's own dtype, and 1/deviation of each row in fp32")
liger_mlps = ActivationCategory("Liger MLPs", "Liger ops/swiglu.py",
    "gate and up, not the activation; their gradients are written over them")
liger_experts = ActivationCategory("Liger experts", "Liger ops/fused_moe.py",
    "what experts have before the activation, and indices")
liger_rotary_positions = ActivationCategory("Liger rotary positions", "Liger ops/rope.py",
    "cosines and sines")
liger_loss = ActivationCategory("Liger loss", "Liger ops/fused_linear_cross_entropy.py",
    "gradients of the head's input and of its weight, made in forward; never all logits")

# made and freed
at_work = ActivationCategory("at work", "transformers models",
    "what operators have made and nothing keeps for backward: residual stream, logits, temporaries")
gradients_of_activations = ActivationCategory("gradients of activations", "torch torch/csrc/autograd/engine.cpp",
    "gradients on their way back, before they reach a parameter")
flash_attention_inside_its_kernel = ActivationCategory("flash attention inside its kernel", "flash-attn flash_api.cpp",
    "sums of gradients in fp32, and keys' and values' gradients for every query head, while the kernel runs")
