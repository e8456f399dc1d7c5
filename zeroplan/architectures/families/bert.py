"""BERT with its language-model head: post-norm layers, three embeddings, no pooler; the decoder is tied.

An encoder (the default) trains as BertForMaskedLM: each token sees all, the loss is the cross-entropy of the masked
tokens, in the dtype of the logits. With is_decoder it is BertLMHeadModel, which predicts the next token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from zeroplan.architectures.attention import attention_forward, attention_interface, split_heads
from zeroplan.architectures.causal import next_token_loss
from zeroplan.architectures.config import Config
from zeroplan.architectures.families.gpt2 import attended_narrowly
from zeroplan.architectures.forward_run import LONG, ForwardRun, LayerInputs
from zeroplan.architectures.module import (
    Activation,
    Buffer,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    Linear,
    Module,
    ModuleList,
    Parameter,
    Unary,
)
from zeroplan.architectures.norms import LayerNorm
from zeroplan.autograd.elementwise import add
from zeroplan.autograd.losses import masked_loss
from zeroplan.autograd.tensor import Tensor, empty, given
from zeroplan.autograd.views import contiguous, expand, reshape, select
from zeroplan.errors import SpecError


@dataclass(kw_only=True)
class BertConfig(Config):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "residual_dropout": ("hidden_dropout_prob",), "attention_dropout": ("attention_probs_dropout_prob",),
    }  # fmt: skip
    divides_heads: ClassVar[bool] = True
    vocab_size: int = 30522
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    hidden_act: str = "gelu"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    tie_word_embeddings: bool = True
    residual_dropout: float = 0.1
    attention_dropout: float = 0.1
    is_decoder: bool = False
    add_cross_attention: bool = False
    pad_token_id: int | None = 0

    def derive(self) -> None:
        super().derive()
        self.embedding_dropout = self.residual_dropout

    def check_heads(self, place: str) -> None:
        super().check_heads(place)
        if self.add_cross_attention and not self.is_decoder:
            raise SpecError(place, "add_cross_attention without is_decoder", "a decoder", "is_decoder: true")


class Embeddings(Module):
    """Words, positions and token types, summed and normed."""

    transformers_class = "Embeddings"
    forward_order: tuple[str, ...] = (
        "word_embeddings", "token_type_embeddings", "position_embeddings", "LayerNorm", "dropout",
    )  # fmt: skip
    takes_gradient = False

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(c.vocab_size, c.hidden_size)
        self.position_embeddings = Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = Embedding(c.type_vocab_size, c.hidden_size)
        self.LayerNorm = LayerNorm(c.hidden_size)
        self.dropout = Dropout(c.residual_dropout)
        self.position_ids = Buffer((1, c.max_position_embeddings), "int64")
        self.token_type_ids = Buffer((1, c.max_position_embeddings), "int64")

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        """Token types are gathered from the buffer of zeros; positions are a view of theirs."""
        gathered = empty(run, (1, run.seq), LONG)
        words = self.word_embeddings(run, ids)
        types = self.token_type_embeddings(run, expand(gathered, (run.batch, run.seq)))
        x = add(words, types)
        places = self.position_embeddings(run, given(run, (1, run.seq), LONG))
        x = add(x, places)
        x = self.LayerNorm(run, x)
        return self.dropout(run, x)


class SelfAttention(Module):
    """The dropout's probability is read, the module never called."""

    transformers_class = "SelfAttention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("query", "key", "value")
    saves_last = True

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.query = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.key = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.value = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.dropout = Dropout(c.attention_dropout)
        self.head_width, self.causal = c.head_width, c.is_decoder

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        q = split_heads(self.query(run, x), self.head_width)
        k = split_heads(self.key(run, x), self.head_width)
        v = split_heads(self.value(run, x), self.head_width)
        drop, shape = self.dropout.probability or 0.0, (*x.shape[:-1], -1)
        weights: Tensor | None
        if run.attention == "eager":
            attend = partial(attended_narrowly, run, dropout=drop, cast=False)
            out, weights = attention_interface(run, attend, q, k, v, shared.mask)
            return reshape(contiguous(out), shape), weights
        out, _ = attention_forward(run, q, k, v, shared.mask, dropout=drop, causal=self.causal, positioned=False)
        return reshape(out, shape), None


class CrossAttention(SelfAttention):
    transformers_class = "CrossAttention"


class Output(Module):
    """norm(dense(x) + residual)."""

    transformers_class = "Output"
    forward_order: tuple[str, ...] = ("dense", "dropout", "LayerNorm")

    def __init__(self, c: BertConfig, inputs: int) -> None:
        super().__init__()
        self.dense = Linear(inputs, c.hidden_size, bias=True)
        self.LayerNorm = LayerNorm(c.hidden_size)
        self.dropout = Dropout(c.residual_dropout)

    def forward(self, run: ForwardRun, x: Tensor, residual: Tensor) -> Tensor:
        x = self.dropout(run, self.dense(run, x))
        return self.LayerNorm(run, add(x, residual))


class SelfOutput(Output):
    transformers_class = "SelfOutput"


class Attention(Module):
    transformers_class = "Attention"
    eager_returns = 1

    def __init__(self, c: BertConfig, attention: type[SelfAttention] = SelfAttention) -> None:
        super().__init__()
        self.self = attention(c)
        self.output = SelfOutput(c, c.hidden_size)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        out, weights = self.self(run, x, shared)
        return self.output(run, out, x), weights


class Intermediate(Unary):
    transformers_class = "Intermediate"

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(c.hidden_size, c.ffn, bias=True)
        self.intermediate_act_fn = Activation(c.hidden_act)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return self.intermediate_act_fn(run, self.dense(run, x))


class Layer(GradientCheckpointingLayer):
    """Attention across to an encoder runs only beside one."""

    transformers_class = "Layer"
    forward_order: tuple[str, ...] = ("attention", "intermediate", "output")
    mask_by_position = True

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(c)
        if c.add_cross_attention:
            self.crossattention = Attention(c, CrossAttention)
        self.intermediate = Intermediate(c)
        self.output = Output(c, c.ffn)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        attended, _weights = self.attention(run, x, shared)
        out: Tensor = self.output(run, self.intermediate(run, attended), attended)
        return out


class Encoder(Module):
    transformers_class = "Encoder"

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.layer = ModuleList(Layer(c) for _ in range(c.num_hidden_layers))

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        for layer in self.layer.children.values():
            x = layer(run, x, shared)
        return x


class Model(Module):
    transformers_class = "Model"
    takes_gradient = False

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(c)
        self.encoder = Encoder(c)
        self.causal = c.is_decoder

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        """An encoder needs no mask where nothing is padded (create_bidirectional_mask)."""
        embedded = self.embeddings(run, ids)
        mask = run.mask() if self.causal else None
        out: Tensor = self.encoder(run, embedded, LayerInputs(None, mask))
        return out


class Pooler(Unary):
    """What the first token becomes."""

    transformers_class = "Pooler"

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.activation = Activation("tanh")

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return self.activation(run, self.dense(run, select(x, 1)))


class PooledModel(Model):
    """Its output, and what the pooler makes of it: the second alone gets a gradient."""

    returns = 2

    def __init__(self, c: BertConfig) -> None:
        super().__init__(c)
        self.pooler = Pooler(c)

    def forward(self, run: ForwardRun, ids: Tensor) -> Any:
        x = super().forward(run, ids)
        return x, self.pooler(run, x)


class BareModel(PooledModel):
    """Its pooled output alone."""

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        pooled: Tensor = super().forward(run, ids)[1]
        return pooled


class Transform(Unary):
    transformers_class = "PredictionHeadTransform"

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.transform_act_fn = Activation(c.hidden_act)
        self.LayerNorm = LayerNorm(c.hidden_size)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.transform_act_fn(run, self.dense(run, x))
        return self.LayerNorm(run, x)


class Predictions(Unary):
    """A transform, then the decoder; tied, its weight is the words' and its bias is the one kept here.

    Not tied, the bias kept here goes unused and has no gradient.
    """

    transformers_class = "LMPredictionHead"
    forward_order: tuple[str, ...] = ("transform", "decoder")

    def __init__(self, c: BertConfig, words: Embedding) -> None:
        super().__init__()
        self.transform = Transform(c)
        self.decoder = Linear(c.hidden_size, c.vocab_size, bias=True)
        self.bias = Parameter(c.vocab_size)
        if c.tie_word_embeddings:
            self.decoder.weight, self.decoder.bias = words.weight, self.bias

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return self.decoder(run, self.transform(run, x))


class Heads(Unary):
    transformers_class = "OnlyMLMHead"

    def __init__(self, c: BertConfig, words: Embedding) -> None:
        super().__init__()
        self.predictions = Predictions(c, words)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return self.predictions(run, x)


class LMHeadModel(Module):
    transformers_class = "LMHeadModel"
    takes_gradient = False

    def __init__(self, c: BertConfig) -> None:
        super().__init__()
        self.bert = Model(c)
        self.cls = Heads(c, self.bert.embeddings.word_embeddings)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return next_token_loss(run, self.bert, self.cls, ids)


class MaskedLM(LMHeadModel):
    transformers_class = "ForMaskedLM"

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        x = self.bert(run, ids)
        logits = self.cls(run, x)
        return masked_loss(logits, ids)


def build(c: BertConfig) -> Module:
    return LMHeadModel(c) if c.is_decoder else MaskedLM(c)
