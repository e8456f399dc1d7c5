"""transformers' classes other than the language model: heads that classify, and the bare trunk.

A head takes the trunk that the family's language model has, under the name that it has there. Sizes and losses are
those of GenericForSequenceClassification and GenericForTokenClassification (modeling_layers.py) and of the families
that write the same out (loss/loss_utils.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from zeroplan.architectures.config import LARGEST_WIDTH, Config
from zeroplan.architectures.forward_run import BOOL, LONG, ForwardRun
from zeroplan.architectures.module import Dropout, Linear, Module
from zeroplan.architectures.registry import BARE, SEQUENCES, TOKENS, language_models
from zeroplan.autograd.indexing import index_pairs
from zeroplan.autograd.losses import sequence_loss, token_loss
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import select
from zeroplan.errors import SpecError, shown
from zeroplan.specs.model import IDS, OF_SEQUENCES, OF_TOKENS, VALUES, Unplanned

SINGLE, REGRESSION = "single_label_classification", "regression"
LOSSES = {
    SEQUENCES: "sequence classification cross-entropy", TOKENS: "token classification cross-entropy", BARE: "none",
}  # fmt: skip
SQUARED = "mean squared error of one value a sequence"
PADS = "pad_token_id set by the script: without one transformers takes batches of one sequence"
DROPOUT = 0.1
"""A token classifier's in transformers, where config.json says nothing."""
WRITTEN_OUT = frozenset({"bert", "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox"})
"""Families whose token classifier is called `classifier`."""
HIDDEN_DROPOUTS = frozenset({"bert", "bloom", "falcon"})
"""Families whose classifiers have the dropout of their layers, where no other is stated."""
INT = 4


class HeadConfig(NamedTuple):
    """What config.json says of a head."""

    model_type: str
    kind: str
    """SEQUENCES, TOKENS or BARE."""
    labels: int = 2
    problem: str = SINGLE
    dropout: float = DROPOUT
    bias: bool = True
    pads: bool = True
    """There is a padding token, after whose like the last token of each sequence is looked for."""

    @property
    def loss(self) -> str:
        return SQUARED if self.problem == REGRESSION else LOSSES[self.kind]

    @property
    def labels_are(self) -> str:
        if self.kind == SEQUENCES:
            return VALUES if self.problem == REGRESSION else OF_SEQUENCES
        return OF_TOKENS if self.kind == TOKENS else IDS

    def assumed(self, content: Mapping[str, Any]) -> tuple[str, ...]:
        """What config.json leaves to transformers and to the script."""
        counted = content.get("id2label") is not None or content.get("num_labels") is not None or self.kind == BARE
        labels = f"num_labels {self.labels} (transformers' default)"
        return (*(() if counted else (labels,)), *(() if self.pads else (PADS,)))

    @property
    def unplanned(self) -> tuple[Unplanned, ...]:
        if self.kind != BARE:
            return ()
        return (
            Unplanned(
                "architectures: a bare model, which computes no loss",
                "activations and time depend on the script's own loss",
                "name the class that is trained, ForCausalLM or ForSequenceClassification",
            ),
        )  # fmt: skip


def head_of(
    content: Mapping[str, Any], config: Config, model_type: str, architecture: str, place: str
) -> HeadConfig | None:
    """None for the language model. Raises `SpecError` for what no plan is made of."""
    if architecture in language_models(model_type):
        return None
    if architecture.endswith(BARE):
        return HeadConfig(model_type, BARE)
    kind = SEQUENCES if architecture.endswith(SEQUENCES) else TOKENS
    if content.get("output_router_logits") is True:
        stated = f"output_router_logits with {architecture}"
        raise SpecError(place, stated, "a head whose loss reads the routers' logits", "output_router_logits: false")
    labels = _labels(content, place)
    dropout = content.get("classifier_dropout")
    if dropout is None:
        dropout = config.residual_dropout if model_type in HIDDEN_DROPOUTS else DROPOUT
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout <= 1:
        raise SpecError(place, f"classifier_dropout = {shown(dropout)}", "a probability between 0 and 1")
    bias = content.get("token_classification_bias", True) is not False or model_type in WRITTEN_OUT
    problem = _problem(content, labels, place) if kind == SEQUENCES else SINGLE
    pads = config.pad_token_id is not None or isinstance(content.get("pad_token_id"), int)
    return HeadConfig(
        model_type, kind, labels, problem, float(dropout), bias, pads or model_type == "bert" or kind == TOKENS
    )


def _labels(content: Mapping[str, Any], place: str) -> int:
    """As many as id2label has, or num_labels, or two."""
    names, count = content.get("id2label"), content.get("num_labels")
    if count is not None and (type(count) is not int or not 1 <= count <= LARGEST_WIDTH):
        raise SpecError(place, f"num_labels = {shown(count)}", "a whole number from 1 up")
    if names is None:
        return 2 if count is None else int(count)
    if not isinstance(names, dict) or not names:
        raise SpecError(place, f"id2label = {shown(names)}", "a name for each number")
    if count is not None and count != len(names):
        raise SpecError(place, f"num_labels = {count} with {len(names)} names in id2label", "one name a label")
    return len(names)


def _problem(content: Mapping[str, Any], labels: int, place: str) -> str:
    problem = content.get("problem_type") or (REGRESSION if labels == 1 else SINGLE)
    if problem not in (REGRESSION, SINGLE) or (problem == SINGLE) is (labels == 1):
        expected = "regression of one label, or single_label_classification of several"
        raise SpecError(place, f"problem_type = {shown(problem)} with num_labels = {labels}", expected)
    return str(problem)


class Classifier(Module):
    """A trunk under its own name, and a linear layer."""

    takes_gradient = False

    def __init__(self, trunk: Module, name: str) -> None:
        super().__init__()
        setattr(self, name, trunk)
        self.trunk_name = name

    @property
    def trunk(self) -> Module:
        return self.children[self.trunk_name]


class SequenceClassifier(Classifier):
    """One row of logits a sequence, of its last token that is no padding; they are computed of all tokens."""

    transformers_class = "ForSequenceClassification"

    def __init__(self, trunk: Module, name: str, width: int, head: HeadConfig) -> None:
        super().__init__(trunk, name)
        self.score = Linear(width, head.labels, bias=False)
        self.problem, self.pads = head.problem, head.pads

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        """Without a padding token the last of all tokens counts."""
        outputs = self.trunk(run, ids)
        logits = self.score(run, outputs)
        if not self.pads:
            rows = empty(run, (run.batch,), LONG)
            return sequence_loss(index_pairs(select(logits, 1), rows), self.problem, on_cpu=run.on_cpu)
        bits = empty(run, (run.batch, run.seq), BOOL)
        not_padding = empty(run, bits.shape, INT)
        del bits
        places = empty(run, (run.seq,), INT)  # noqa: F841 (alive while forward runs)
        product = empty(run, not_padding.shape, INT)
        last = empty(run, (run.batch,), LONG)
        del product
        pooled = index_pairs(logits, empty(run, (run.batch,), LONG), last)
        return sequence_loss(pooled, self.problem, on_cpu=run.on_cpu)


class TextSequenceClassifier(SequenceClassifier):
    """Gemma 3's of text alone."""

    transformers_class = "TextForSequenceClassification"


class PooledClassifier(Classifier):
    """BERT's: the first token of each sequence, by way of a pooler."""

    transformers_class = "ForSequenceClassification"

    def __init__(self, trunk: Module, name: str, width: int, head: HeadConfig) -> None:
        super().__init__(trunk, name)
        self.dropout = Dropout(head.dropout)
        self.classifier = Linear(width, head.labels, bias=True)
        self.problem = head.problem

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        outputs = self.trunk(run, ids)
        x = self.dropout(run, outputs[1])
        logits = self.classifier(run, x)
        return sequence_loss(logits, self.problem, on_cpu=run.on_cpu)


class TokenClassifier(Classifier):
    """A row of logits for each token, after a dropout; some families call the layer `classifier`."""

    transformers_class = "ForTokenClassification"

    def __init__(self, trunk: Module, name: str, width: int, head: HeadConfig) -> None:
        super().__init__(trunk, name)
        self.dropout = Dropout(head.dropout)
        self.linear_name = "classifier" if head.model_type in WRITTEN_OUT else "score"
        setattr(self, self.linear_name, Linear(width, head.labels, bias=head.bias))
        self.upcasts = head.model_type not in WRITTEN_OUT - {"gpt_neox"}

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        outputs = self.trunk(run, ids)
        x = self.dropout(run, outputs)
        logits = self.children[self.linear_name](run, x)
        return token_loss(logits, ids, upcasts=self.upcasts)


def builder(build: Callable[[Any], Module], head: HeadConfig) -> Callable[[Any], Module]:
    """What makes the tree of a config with this head; `build`: what makes the family's language model."""
    return partial(_built, build, head)


def _built(build: Callable[[Any], Module], head: HeadConfig, config: Any) -> Module:
    name, trunk = _trunk(build, head, config)
    if head.kind == BARE:
        return trunk
    width = getattr(config, "word_embed_proj_dim", None) or config.hidden_size
    if head.kind == TOKENS:
        return TokenClassifier(trunk, name, width, head)
    kinds = {"bert": PooledClassifier, "gemma3_text": TextSequenceClassifier}
    return kinds.get(head.model_type, SequenceClassifier)(trunk, name, width, head)


def _trunk(build: Callable[[Any], Module], head: HeadConfig, config: Any) -> tuple[str, Module]:
    """The trunk as its head calls it, and its name there."""
    if head.model_type == "bert":
        from zeroplan.architectures.families import bert

        trunks = {TOKENS: bert.Model, SEQUENCES: bert.PooledModel, BARE: bert.BareModel}
        return "bert", trunks[head.kind](config)
    if head.model_type == "opt":
        from zeroplan.architectures.families import opt

        return "model", opt.CalledModel(config)
    return next(iter(build(config).children.items()))
