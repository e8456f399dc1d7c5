"""A model: its tensors in registration order, and the shape of a layer."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zeroplan.errors import ContradictionError
from zeroplan.specs.adapter import LOW_RANK, Adapter, is_added
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.execution import AllocatedActivations, Execution, Timeline
from zeroplan.specs.images import Images
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.quantization import INT8, Quantization

if TYPE_CHECKING:
    from zeroplan.specs.account import BackwardShare, Flops, RecomputedShare, SavedActivations


class Unplanned(NamedTuple):
    """A part of the job that is not planned. What GPUs hold between steps still holds; where it does not, the job is
    refused with a `ContradictionError` in its place.
    """

    what: str
    """As the user wrote it, with its place: `ds_config.json: sequence_parallel_size 4`."""
    effect: str
    """What it changes that is not counted, as a clause: `each GPU computes a quarter of every sequence`."""
    instead: str
    """What to write or do for a planned answer, as an imperative clause: `write "sequence_parallel_size": 1`."""


class ParameterSpec(NamedTuple):
    """A parameter, named as transformers names it."""

    name: str
    shape: tuple[int, ...]
    elements: int
    viewed: bool = False
    """Forward saves views of it for backward, which keep it alive after stage 3 has released it."""
    linear: bool = False
    """A parameter of a torch.nn.Linear, by one of its owners if it is tied."""
    trainable: bool = True
    """Its requires_grad when `initialize` is called: a frozen one has no gradient, and no optimizer knows of it."""
    still: bool = False
    """The model's own class does not train it."""
    packed: tuple[int, int] | None = None
    """Shape of the weight whose 4 or 8 bits an element it holds; None: it is the weight itself."""
    dtype: str = ""
    """Of the tensor, where it is not the training precision's whatever that is."""

    @property
    def matrix(self) -> tuple[int, ...]:
        """The shape of what a product multiplies with."""
        return self.packed or self.shape


MIN_IDENTICAL_BATCH = 2
"""Sequences from which on a step makes the same tensors, only larger ones; with one alone other copies are made."""


class TimelineRequest(NamedTuple):
    """What decides a model's timeline, beside its leaf modules."""

    batch: int
    seq: int
    width: int
    """Bytes of an element of the parameters."""
    half: bool
    """They are fp16."""
    attention: str
    """eager, sdpa, flash_attention_2 or flash_attention_3."""
    kernel: str
    """The kernel of sdpa, as `architectures.forward_run.ForwardRun` names them."""
    recomputing: Recomputing
    zero_linear: bool
    """DeepSpeed's own linear function runs (stage 3)."""
    kernels: str = "transformers"
    """Or Liger's, as `Strategy.kernels` says."""
    autocast_bytes: int = 0
    """Bytes of an element of what torch.autocast computes in; 0: without it."""
    frozen: frozenset[int] = frozenset()
    """Indices of the tensors that do not train."""
    wide: frozenset[int] = frozenset()
    """Indices of those in fp32 whatever the others are in."""
    loaded: int = 0
    """Bytes of an element of the weights that were packed; 0: where none were."""

    @property
    def eager(self) -> bool:
        return self.attention == "eager"

    @property
    def is_even(self) -> bool:
        """Whether bytes grow in proportion to the batch: flash-attention's and Liger's kernels cut their work by its
        size.
        """
        plain = self.kernels == "transformers" and not self.flash
        return plain and not self.recomputing.inputs.empties and self.batch >= MIN_IDENTICAL_BATCH

    @property
    def flash(self) -> bool:
        return self.attention.startswith("flash")


class LeafModules(NamedTuple):
    """Which modules ZeRO-3 takes as a whole: `leaf_module` and stage3_module_granularity_threshold.

    The defaults are those of runtime/zero/leaf_module_config.py.
    """

    classes: tuple[str, ...] = (
        "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
        "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
        "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
    )
    """Names of classes, bare or in full."""
    names: tuple[str, ...] = ()
    """Paths of modules."""
    name_suffixes: tuple[str, ...] = ()
    """Ends of such paths."""
    granularity_threshold: int = 0
    """Parameters a module, on average, at or under which the outermost module becomes a leaf."""


DEFAULT_LEAVES = LeafModules()


class ModelProfile(Protocol):
    """What a step of a model runs and has alive: order of modules, bytes, FLOPs. Today families that are described make
    it, by running their modules on sizes.

    What is not written out for a model or a request is None.
    """

    def execution(
        self, leaves: LeafModules = DEFAULT_LEAVES, *, eager: bool = False, flash: bool = False,
        kernels: str = "transformers", recomputing: Recomputing = PLAIN, frozen: frozenset[int] = frozenset(),
    ) -> Execution:  # fmt: skip
        """The order in which a step enters and leaves modules, and in which gradients are ready.

        `eager`: with eager attention, which returns its weights and in some families calls a dropout of its own.
        `flash`: with the flash-attention package, which in GPT-J leaves out such a dropout. `frozen`: indices of the
        tensors that do not train; what needs no gradient has no backward, and no hook of DeepSpeed's fires there.
        """

    def timeline(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> Timeline | None:
        """Bytes alive in each interval of forward and backward."""

    def alone(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> tuple[int, int, int] | None:
        """Bytes saved when forward has returned, and the peaks of forward and of backward."""

    def allocated(
        self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES, *, backward: bool, at: int, size: int,
        named: bool = False,
    ) -> AllocatedActivations:  # fmt: skip
        """The `size` bytes that are alive in an interval of a pass, at most or at its end; `named`, as polynomials in
        the model's sizes.
        """

    def places(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES, *, backward: bool) -> list[str]:
        """The path of the module at work in each interval of a pass, empty for the model itself."""

    def peak(self, request: TimelineRequest, *, backward: bool) -> AllocatedActivations | None:
        """The largest moment of a pass, its bytes with the polynomials that they are the values of."""

    def flops(self, request: TimelineRequest, *, causal: bool = False) -> "Flops | None":
        """As torch's FlopCounterMode counts, all pairs of tokens; `causal`: fused kernels leave out those ahead."""

    def recomputed_share(self, request: TimelineRequest) -> "RecomputedShare | None":
        """What of forward checkpointed layers run again in backward."""

    def backward_share(self, request: TimelineRequest) -> "BackwardShare | None":
        """What of backward runs, where some parameters do not train."""

    def offloaded_inputs(self, request: TimelineRequest) -> tuple[int, ...]:
        """Bytes of each layer's input, where deepspeed.checkpointing empties them."""

    def saved(self, request: TimelineRequest) -> "SavedActivations | None":
        """What forward keeps for backward, operator by operator; None as for the timeline."""


class Shape(NamedTuple):
    """The widths that activations and FLOPs follow from, in elements."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    value_width: int
    """Width of one head's values; differs from `head_width` in multi-head latent attention."""
    ffn: int
    """Width of the MLP, or of one expert."""
    vocab: int
    positions: int
    """max_position_embeddings, 0 where it is not stated."""
    rms_norm: bool
    norms: int
    """Norms of one layer."""
    gated: bool
    experts: int = 0
    experts_per_token: int = 0
    dense_layers: int = 0
    """Layers without experts in a mixture of experts."""
    dense_ffn: int = 0
    """Their width; and of the shared expert where there is one, `shared_ffn`."""
    shared_ffn: int = 0
    windows: tuple[int, ...] = ()
    """Tokens that a layer sees back, of each layer that does not see all."""
    causal: bool = True
    """A token sees those before it alone; in an encoder all."""
    masked: bool = False
    """Its mask is given to torch's attention as a tensor, whatever it says: all pairs are computed."""

    @property
    def queries(self) -> int:
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        return self.kv_heads * self.head_width


NEXT_WORD, MASKED_WORD = "next-token cross-entropy", "masked-token cross-entropy"

IDS, OF_TOKENS, OF_SEQUENCES, VALUES = "token ids", "one a token", "one a sequence", "one value a sequence"
"""What the labels of a batch are."""


class ModelInput(NamedTuple):
    """A tensor that a micro-batch has beside its token ids."""

    name: str
    dtype: str
    """As in `Model.buffers`."""
    per_sequence: int
    """Elements of each sequence, beside those of each of its tokens."""
    per_token: int


class Model(NamedTuple):
    name: str
    family: str
    tensors: tuple[ParameterSpec, ...]
    """All parameters, frozen ones among them, tied ones once, as `named_parameters` gives them."""
    parameters: int
    """Their elements, trainable or not; of those that train, `trainable_parameters`."""
    shape: Shape
    buffers: tuple[tuple[str, int], ...]
    """dtype and elements of each buffer that the model registers (rotary frequencies and the like); dtype
    "training" is that of the parameters, "built" is float32, or that of the parameters under zero.Init; "kept" is
    float32 whatever data_types.buffer_dtype says, as transformers' model asks (_keep_in_fp32_modules_strict)."""
    source: str
    """Where tensors and shape come from: a preset, a config.json, or inferred from a count."""
    profile: ModelProfile
    """Its step, worked out as far as it is read."""
    config: dict[str, Any] = {}  # noqa: RUF012 (a tuple's default, never changed)
    """config.json of the model, `model_type` included; empty where nothing stated one."""
    inferred: bool = False
    has_sdpa: bool = True
    """transformers runs its attention through torch's fused kernels, unless told otherwise."""
    own_attention: tuple[str, ...] = ()
    """Attentions that its layers compute themselves, not through transformers' AttentionInterface."""
    changes_products: str = ""
    """What its layers do to a product's result where it lies; empty for nothing."""
    no_flash: str = ""
    """Why transformers does not run it with the flash-attention package; empty where it does."""
    tied: tuple[int, ...] = ()
    """Elements of each parameter that a module makes for itself and loses when it is tied to another's."""
    architecture: str = ""
    """transformers' class, as `architectures` of config.json names it; empty where the shape is inferred."""
    loss: str = NEXT_WORD
    """What training minimizes, as its last module computes it."""
    labels: str = IDS
    """What the labels of its loss are."""
    unread: tuple[str, ...] = ()
    """Keys of its config.json that nothing here reads and that might change what is counted."""
    unplanned: tuple[Unplanned, ...] = ()
    """What its config.json says that is not planned."""
    assumed: tuple[str, ...] = ()
    """What its config.json leaves out or says in another's words: sizes that are transformers' class defaults
    (`num_key_value_heads 32 (transformers' default for qwen3)`), and the family that an unknown model_type is read
    as."""
    approximate: float = 0.0
    """Share by which memory may be off, where the shape was read from a family that is not described."""
    freeze: tuple[str, ...] = ()
    """Patterns of the names of parameters that do not train, as `with_frozen` was given them; `train`: of those that
    train all the same."""
    train: tuple[str, ...] = ()
    adapter: Adapter | None = None
    """Adapters that peft has added, which train in place of the weights."""
    inputs: tuple[ModelInput, ...] = ()
    images: Images | None = None
    """Those of each sequence; None for a model of text alone."""
    target: int | None = None
    """Tokens of each target of an encoder-decoder; 0: as many as its source; None: its words are one sequence."""
    micro_batches: tuple[int, ...] = ()
    """Sequences of a micro-batch that its step is known of; empty: any."""
    checkpoints: bool = True
    """transformers has layers of it that can be checkpointed."""
    hands_through: bool = False
    """Its layers return tensors that they are given, of which a reentrant checkpoint makes new ones."""
    attentions: tuple[str, ...] = ()
    """Those that its step is known with; empty: any that transformers runs."""
    recorded_with: str = ""
    """The versions of torch and transformers whose operators its step has, where it is that of a recording."""
    quantization: Quantization | None = None
    """How bitsandbytes holds weights of linear layers."""

    def __hash__(self) -> int:
        """By identity: a search looks the same model up thousands of times."""
        return id(self)

    @property
    def sizes(self) -> InputSizes:
        """Of a sequence's inputs beside its words."""
        return InputSizes(self.images, self.target)

    @property
    def is_recorded(self) -> bool:
        """Its step is that of a recording."""
        return bool(self.recorded_with)

    @property
    def largest(self) -> ParameterSpec:
        """The tensor with most elements, trainable or not."""
        return _training(self).largest

    @property
    def trainable(self) -> tuple[int, ...]:
        """Indices into `tensors` of those that train, in order; only these have gradients and optimizer states."""
        return _training(self).trainable

    @property
    def trainable_parameters(self) -> int:
        """Elements of those that train."""
        return _training(self).elements

    @property
    def frozen(self) -> frozenset[int]:
        """Indices of those that do not."""
        return _training(self).frozen

    @property
    def frozen_parameters(self) -> int:
        """Elements of those."""
        return self.parameters - self.trainable_parameters

    @property
    def weights(self) -> int:
        """Elements of its own weights, packed or not, without what adapters add: the size that people know it by."""
        return sum([prod(each.matrix) for each in self.tensors if not is_added(each.name)])

    @property
    def products(self) -> int:
        """Elements of all weights that a token may be multiplied with, packed or not."""
        return sum([prod(each.matrix) for each in self.tensors])

    @property
    def added(self) -> tuple[int, ...]:
        """Indices of those that peft has added."""
        return _training(self).added

    @property
    def low_rank(self) -> tuple[int, ...]:
        """Indices of those of adapters, without the copies of whole modules."""
        return _training(self).low_rank

    @property
    def packed(self) -> tuple[ParameterSpec, ...]:
        """The tensors that hold weights in 4 or 8 bit."""
        return tuple([each for each in self.tensors if each.packed]) if self.quantization else ()

    @property
    def in_8_bit(self) -> bool:
        """Whether those are 8-bit codes, which bitsandbytes' modules keep beside their parameters."""
        return self.quantization is not None and self.quantization.kind == INT8

    @property
    def largest_trainable(self) -> ParameterSpec:
        """The tensor with most elements among those that train."""
        return _training(self).largest_trainable


class _Training(NamedTuple):
    trainable: tuple[int, ...]
    frozen: frozenset[int]
    added: tuple[int, ...]
    low_rank: tuple[int, ...]
    elements: int
    largest_trainable: ParameterSpec
    largest: ParameterSpec


@lru_cache(maxsize=8)
def _training(model: Model) -> _Training:
    """What follows from the model's tensors; counted once, as models are hashed by identity."""
    trainable = tuple([index for index, tensor in enumerate(model.tensors) if tensor.trainable])
    frozen = frozenset(range(len(model.tensors))).difference(trainable)
    named = enumerate(model.tensors if model.adapter else ())
    added = tuple([index for index, tensor in named if is_added(tensor.name)])
    low_rank = tuple([index for index in added if any(part in model.tensors[index].name for part in LOW_RANK)])
    tensors = [model.tensors[index] for index in trainable]
    largest = (max(several, key=lambda tensor: tensor.elements) for several in (tensors, model.tensors))
    return _Training(trainable, frozen, added, low_rank, sum([tensor.elements for tensor in tensors]), *largest)


def with_frozen(model: Model, patterns: Sequence[str], trainable: Sequence[str] = ()) -> Model:
    """The model, all of which trains that its class trains, with requires_grad_(False) on the parameters of these
    names, but for those that are `trainable` all the same: globs, as `*embed_tokens*`.

    Raises `ContradictionError` where nothing is left to train: torch has no optimizer without parameters.
    """

    def is_frozen(name: str) -> bool:
        frozen, kept = (any(fnmatchcase(name, each) for each in globs) for globs in (patterns, trainable))
        return frozen and not kept

    tensors = tuple([
        tensor._replace(trainable=not (tensor.still or is_frozen(tensor.name))) for tensor in model.tensors
    ])  # fmt: skip
    if not any(tensor.trainable for tensor in tensors):
        raise ContradictionError(f"{model.name}: all parameters are frozen; leave one to train")
    return model._replace(tensors=tensors, freeze=tuple(patterns), train=tuple(trainable))
