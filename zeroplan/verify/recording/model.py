"""Models of transformers as they are recorded: the class that a config means, its inputs, and what costs read of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import lcm
from pathlib import Path
from typing import Any

import torch
import transformers

from zeroplan.architectures.heads import PADS
from zeroplan.architectures.model import TRAINING
from zeroplan.architectures.recorded.assembled import assemble
from zeroplan.architectures.recorded.modules import ModuleRecord
from zeroplan.architectures.recorded.program import Program
from zeroplan.architectures.recorded.recording import OWN_CODE, Recording
from zeroplan.errors import SpecError, ZeroplanError, shown
from zeroplan.specs.images import NO_IMAGES, Images
from zeroplan.specs.input_sizes import AS_LONG, UNSTATED, InputSizes
from zeroplan.specs.model import IDS, OF_SEQUENCES, VALUES, ModelInput, Shape
from zeroplan.verify.dtypes import DTYPES
from zeroplan.verify.images import KINDS, counted, least_of
from zeroplan.verify.inputs import LABELS, inputs
from zeroplan.verify.job import no_cache
from zeroplan.verify.plain import narrow_parameters
from zeroplan.verify.recording.fast_kernels import VERSIONS
from zeroplan.verify.recording.fast_kernels_fla import CHUNK
from zeroplan.verify.recording.flash_package import VERSIONS as FLASH_VERSIONS
from zeroplan.verify.recording.flash_package import flash_package
from zeroplan.verify.recording.growth import NotOneProgramError
from zeroplan.verify.recording.registered import registered
from zeroplan.verify.recording.remote_code import OPTION, brings, config_class, model_class
from zeroplan.verify.recording.variants import Recordable, Way, joined, recorded
from zeroplan.verify.task import WORDS, Task, class_of, task_of

WINDOWS = ("sliding_window", "attention_chunk_size", "local_attention")
CHUNKS = ("chunk_size", "mamba_chunk_size")
COMPRESSED = "compress_rates"
"""By kind of layer (DeepSeek-V4)."""
DELTA_RULE = ("linear_num_value_heads", "linear_num_heads", "linear_attn_config")
"""What configs say of layers whose chunks fla's kernels cut, whatever a config says."""
USUAL_FFN = 4
"""Times the hidden size, where no width of the MLP is stated."""
ATTENTIONS = ("sdpa", "eager", *FLASH_VERSIONS)
PRECISIONS = ("bf16", "fp16", "fp32")


def config_of(content: Mapping[str, Any], place: str, trusted: Path | None = None) -> Any:
    """The config as transformers has it; `trusted`: the folder whose own code may run. Raises `SpecError`."""
    fields = {name: value for name, value in content.items() if name != "transformers_version"}
    model_type = fields.pop("model_type", None)
    of_its_own = trusted is not None and bool(brings(content))
    if model_type not in transformers.CONFIG_MAPPING and not of_its_own:
        other, write = "", ""
        if brings(content):
            other, write = ", whose class is its repository's own code", f"{OPTION} to run that code"
        expected = f"a family of transformers {transformers.__version__}"
        raise SpecError(place, f"model_type = {shown(model_type)}{other}", expected, write)
    try:
        if of_its_own and trusted:
            config = config_class(content, trusted, place)(**fields)
        else:
            config = transformers.AutoConfig.for_model(model_type, **fields)
    except SpecError:
        raise
    except Exception as error:  # whatever transformers makes of a file
        raise SpecError(place, f"a config that transformers refuses: {_line(error)}", "one that it reads") from error
    no_cache(config)
    return config


def built(kind: Any, config: Any, dtype: str, attention: str) -> torch.nn.Module:
    """The model as DeepSpeed trains it: parameters in the training dtype."""
    with torch.device("meta"), flash_package():
        model: torch.nn.Module = kind._from_config(config, dtype=DTYPES[dtype], attn_implementation=attention)
    narrow_parameters(model, DTYPES[dtype])
    return model.train()


def recording(
    content: Mapping[str, Any], *, name: str, place: str, ways: Sequence[Way] = (), sizes: InputSizes = UNSTATED,
    attention: str | None = None, precision: str | None = None, trusted: Path | None = None,
    watch: Callable[[str], None] = lambda _what: None,
) -> Recording:  # fmt: skip
    """What runs of the model that a config.json means: in all of its ways, in these, or in those of one attention or
    precision. `trusted`: the folder whose own code may run. Raises `SpecError`.
    """
    config = config_of(content, place, trusted)
    own = trusted is not None and bool(brings(content))
    kind = model_class(content, trusted, place) if own and trusted else class_of(config, place)
    text = config.get_text_config()
    check_images(config, sizes.images, place)
    task = task_of(kind, config, place)
    sizes = sizes_of(config, task, sizes, place)
    images = sizes.images
    pads = task.labels in (VALUES, OF_SEQUENCES) and text.pad_token_id is None
    if pads:
        text.pad_token_id = 0
    of = Recordable(
        partial(built, kind, config), partial(inputs, config, task, sizes), windows(text), chunk(text),
        images=bool(images and images.number), least=least_of(images) if images else 1, stood_in=set(),
        has_target=bool(sizes.target),
    )  # fmt: skip
    ways = ways or ways_of(kind, attention, precision, place, has_images=of.images)
    try:
        variants, programs = joined(list(recorded(of, ways, watch)))
    except NotOneProgramError as error:
        found = f"a model whose operators follow from the sequence: {_line(error)}"
        raise SpecError(place, found, "the same operators in any batch") from error
    except ZeroplanError:
        raise
    except Exception as error:  # whatever the model's own code makes of the config
        found = f"{kind.__name__}, which stops on torch's meta device: {_line(error)}"
        raise SpecError(place, found, "a model that runs there") from error
    model = of.build("bf16", ways[0].attention)
    modules = registered(model, _dtypes(of, ways[0].attention, model))
    check_modules(modules, programs, f"{place}: {kind.__name__}")
    return Recording(
        name, config.model_type, kind.__name__, task.loss, task.labels,
        json.dumps({**content, "model_type": config.model_type, "architectures": [kind.__name__]}, sort_keys=True),
        shape(text, model), modules, variants, programs,
        {"torch": torch.__version__, "transformers": transformers.__version__},
        (*([PADS] if pads else []), *notes_on(of.stood_in), *([OWN_CODE] if own else [])),
        images=images, inputs=tuple(beside_words(of)), input_embeddings=input_embeddings(model),
        target=sizes.target,
    )  # fmt: skip


def check_modules(modules: ModuleRecord, programs: Sequence[Program], place: str) -> None:
    """Raises `SpecError` for a class that puts other modules in their place as it runs."""
    for program in programs:
        try:
            assemble(modules, program)
        except KeyError as error:
            found = f"a model that has no {error} before it runs, and calls it"
            raise SpecError(place, found, "modules that stay") from error


def input_embeddings(model: Any) -> tuple[str, ...]:
    """Paths of modules that transformers has ask for a gradient where layers are checkpointed: those of each model
    within the model, and none where it is not given words (activation_checkpointing_enable in modeling_utils.py).
    """
    if model.main_input_name != WORDS:
        return ()
    before = {path for path, module in model.named_modules() if module._forward_hooks}
    model.enable_input_require_grads()
    after = [path for path, module in model.named_modules() if module._forward_hooks]
    model.disable_input_require_grads()
    return tuple([path for path in after if path not in before])


def ways_of(
    kind: Any, attention: str | None, precision: str | None, place: str, *, has_images: bool
) -> list[Way]:  # fmt: skip
    """Those in which a class runs, of one attention or precision where it is stated; with images, whose towers take
    their time in each, eager attention only where it is, or where the class has no sdpa. Raises `SpecError`.
    """
    attentions = [each for each in ATTENTIONS if _has(kind, each)]
    leaves_out = "eager" if has_images and "sdpa" in attentions else ""
    usual = [each for each in attentions if each != leaves_out]
    known: dict[str, Sequence[str]] = {"attention": attentions, "precision": PRECISIONS}
    for name, stated in (("attention", attention), ("precision", precision)):
        if stated is not None and stated not in known[name]:
            raise SpecError(place, f"--{name} {stated}", f"{kind.__name__} is recorded with {' or '.join(known[name])}")
    dtypes = [precision] if precision else PRECISIONS
    every = [Way(each, dtype) for each in ([attention] if attention else usual) for dtype in dtypes]
    return [way for way in every if way.attention not in FLASH_VERSIONS or way.dtype != "fp32"]


def _has(kind: Any, attention: str) -> bool:
    """Whether a class of transformers runs with an attention."""
    if attention in FLASH_VERSIONS:
        compatible = getattr(kind, "_compatible_flash_implementations", None) or FLASH_VERSIONS
        return bool(kind._supports_flash_attn) and attention in compatible
    return attention == "eager" or bool(kind._supports_sdpa)


def notes_on(stood_in: set[str]) -> tuple[str, ...]:
    """What ran in the place of kernels."""
    if not stood_in:
        return ()
    read = ", ".join(f"{package} {version}" for package, version in VERSIONS.items())
    return (f"{', '.join(sorted(stood_in))}: what they hold is as their sources say ({read}) and as it was on an H100",)


def check_images(config: Any, images: Images | None, place: str) -> None:
    """Raises `SpecError` for a model of images without any, or the other way about."""
    takes = getattr(config, "vision_config", None) is not None
    of_text = f"{NO_IMAGES.options} where it is trained on text alone"
    if takes and not images:
        usual = Images(1, 448, 448).options
        expected = "how many each sequence has, and their size"
        raise SpecError(place, f"{config.model_type}, a model of images", expected, f"{usual}, or {of_text}")
    if images and images.number and takes and config.model_type not in KINDS:
        known = ", ".join(KINDS)
        raise SpecError(place, f"{config.model_type} with images", f"one of {known}", of_text)
    if images and not takes:
        raise SpecError(place, f"{config.model_type} with --images", "a model that takes images")


def sizes_of(config: Any, task: Task, stated: InputSizes, place: str) -> InputSizes:
    """With the tokens that an image takes; a target is as long as its source where nobody says. Raises `SpecError` for
    the target of what is no encoder-decoder of words.
    """
    images, target, _is_as_long = stated.recorded
    if config.is_encoder_decoder and task.takes == WORDS and task.labels == IDS:
        target = target or AS_LONG
    elif target is not None:
        raise SpecError(place, f"{config.model_type} with --target-seq", "an encoder-decoder of text; leave it out")
    return InputSizes(counted(config, images) if images and images.number else images, target)


def beside_words(of: Recordable) -> Iterator[ModelInput]:
    """Inputs that are neither words nor their labels, and labels that are a target of their own, by what two lengths of
    sequences tell.
    """
    batch, seq = 2, 4096
    short, long = (of.inputs(batch, length, "fp32").tensors for length in (seq, 2 * seq))
    for name, each in short.items():
        if name == WORDS or (name == LABELS and not of.has_target):
            continue
        per_token, rest = divmod(long[name].numel() - each.numel(), batch * seq)
        assert not rest
        dtype = TRAINING if each.dtype == torch.float32 else str(each.dtype).removeprefix("torch.")
        yield ModelInput(name, dtype, each.numel() // batch - per_token * seq, per_token)


def windows(text: Any) -> tuple[int, ...]:
    """Tokens from which on layers that see a part of a sequence are given a mask of their own."""
    stated = [_stated(text, name) for name in WINDOWS]
    return tuple([each for each in stated if isinstance(each, int) and each > 1])


def chunk(text: Any) -> int:
    """Tokens that layers with a state, or that compress keys, take together; 1: each by itself, or all."""
    rates = _stated(text, COMPRESSED)
    each_kind = rates.values() if isinstance(rates, dict) else ()
    stated = [each for each in (*(_stated(text, name) for name in CHUNKS), *each_kind) if isinstance(each, int)]
    delta_rule = any(_stated(text, name) for name in DELTA_RULE)
    return lcm(1, *stated, *([CHUNK] if delta_rule else []))


def _stated(text: Any, name: str) -> Any:
    """A field; where layers differ in it that of the config itself."""
    try:
        return getattr(text, name, None)
    except Exception:  # transformers' own, for a field that is one of each layer
        return vars(text).get(name)


def shape(text: Any, model: torch.nn.Module) -> Shape:
    """Widths of a layer, from the config's names for them and the last layer's modules."""

    def number(*names: str) -> int:
        values = (_stated(text, name) for name in names)
        return next((int(each) for each in values if isinstance(each, int) and each), 0)

    hidden, heads = number("hidden_size"), number("num_attention_heads") or 1
    width = number("head_dim") or hidden // heads
    latent = number("qk_nope_head_dim")
    names = [name for name, _parameter in model.named_parameters()]
    experts = number("num_experts", "num_local_experts", "n_routed_experts")
    ffn = number("intermediate_size", "ffn_dim", "d_ff", "n_inner") or USUAL_FFN * hidden
    types = _stated(text, "layer_types") or ()
    window = number("sliding_window", "attention_chunk_size")
    local = [window for kind in types if kind in ("sliding_attention", "chunked_attention")]
    return Shape(
        hidden=hidden, layers=number("num_hidden_layers"), heads=heads,
        kv_heads=heads if latent else number("num_key_value_heads") or heads,
        head_width=latent + number("qk_rope_head_dim") if latent else width,
        value_width=number("v_head_dim") or width,
        ffn=(number("moe_intermediate_size") or ffn) if experts else ffn, vocab=number("vocab_size"),
        positions=number("max_position_embeddings", "max_target_positions"),
        rms_norm=any("RMSNorm" in type(module).__name__ for module in model.modules()), norms=2,
        gated=any("gate_proj" in name or "gate_up_proj" in name for name in names), experts=experts,
        experts_per_token=number("num_experts_per_tok") if experts else 0,
        dense_layers=number("first_k_dense_replace") if experts else 0, dense_ffn=ffn if experts else 0,
        windows=tuple(local) if window else (), causal="MaskedLM" not in type(model).__name__,
    )  # fmt: skip


@contextmanager
def as_under_zero_init(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that are made have the training dtype (deepspeed.zero.Init, runtime/zero/partition_parameters.py)."""
    names = ("tensor", "empty", "zeros", "ones", "full", "arange", "eye", "randn")
    originals = {name: getattr(torch, name) for name in names}

    def narrowed(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def run(*args: Any, **named: Any) -> torch.Tensor:
            made = make(*args, **named)
            return made.to(dtype) if made.is_floating_point() else made

        return run

    for name, make in originals.items():
        setattr(torch, name, narrowed(make))
    try:
        yield
    finally:
        for name, make in originals.items():
            setattr(torch, name, make)


def _dtypes(of: Recordable, attention: str, in_bf16: torch.nn.Module) -> dict[str, str]:
    """Of each buffer, as `Model.buffers` has them."""
    wide, narrow = (dict(each.named_buffers()) for each in (of.build("fp32", attention), in_bf16))
    with as_under_zero_init(torch.bfloat16):
        model = of.build("bf16", attention)
    partitioned, kept = dict(model.named_buffers()), getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    result: dict[str, str] = {}
    for name, each in wide.items():
        stated = str(each.dtype).removeprefix("torch.")
        if each.dtype == torch.float32:
            in_16_bit = narrow[name].dtype, partitioned[name].dtype
            if in_16_bit[0] == torch.bfloat16:
                stated = "training"
            elif any(part in name for part in kept):
                stated = "kept"
            elif in_16_bit[1] == torch.bfloat16:
                stated = "built"
        result[name] = stated
    return result


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
