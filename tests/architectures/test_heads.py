"""Classifiers of described families, against torch's own run of transformers' classes and transformers itself."""

from __future__ import annotations

import copy
import json
import warnings
from typing import Any

import pytest

from tests.architectures.draws import draw
from tests.autograd.recorded import COUNTED, Case, name, read, run_of
from zeroplan.architectures.heads import builder, head_of
from zeroplan.architectures.leaves import class_name
from zeroplan.architectures.module import Activation
from zeroplan.architectures.read import read_config
from zeroplan.architectures.registry import BARE, FAMILIES, accepted_architectures, family, language_models
from zeroplan.architectures.trace import run_step
from zeroplan.catalog.models import from_file
from zeroplan.errors import SpecError, ZeroplanError

CASES = [*read("heads_torch_2.13.json"), *read("heads_torch_2.14.json")]
HEADS = [(each, name) for each in sorted(FAMILIES) for name in accepted_architectures(each) if name not in language_models(each)]


def built(config: dict[str, Any], architecture: str) -> Any:
    model_type, c = read_config(copy.deepcopy(config), "config.json")
    head = head_of(config, c, model_type, architecture, "config.json")
    assert head
    return builder(family(model_type)[1], head)(c)


def test_enough_of_everything_is_recorded():
    assert len(CASES) >= 120
    assert {case["config"]["model_type"] for case in CASES} == set(FAMILIES)
    assert {case["architecture"].rpartition("For")[2] for case in CASES} == {"SequenceClassification", "TokenClassification"}
    assert {case["attention"] for case in CASES} == {"eager", "sdpa"}
    assert {case["checkpointing"] for case in CASES} == {True, False}
    assert {case["dtype"] for case in CASES} == {"fp32", "bf16", "fp16"}
    assert {1, 2, 5} <= {case["config"]["num_labels"] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['architecture']} {name(case)}")
def test_as_torch_measured(case: Case):
    run = run_of(case)
    assert run_step(built(case["config"], case["architecture"]), run) == {counted: case[counted] for counted in COUNTED}
    assert run.allocated == 0


@pytest.mark.parametrize(("model_type", "architecture"), HEADS, ids=str)
def test_tensors_are_transformers_own(model_type, architecture):
    """Names, shapes and order of the parameters, and every module's class."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    compared = 0
    for seed in range(5):
        config = {**draw(model_type, seed), "num_labels": 2 + seed % 2, "output_router_logits": False}
        fields = copy.deepcopy(config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with torch.device("meta"):
                    model = getattr(transformers, architecture)(transformers.CONFIG_MAPPING[fields.pop("model_type")](**fields))
                    model.tie_weights()
            except Exception:
                continue  # both refuse it: test_families_against_transformers.py
        mine = built(config, architecture)
        shapes = [(path, tuple(tensor.shape)) for path, tensor in model.named_parameters()]
        assert [(path, tensor.shape) for path, tensor in mine.named_parameters()] == shapes, config
        theirs = dict(model.named_modules())
        assert [path for path, _module in mine.named_modules()] == list(theirs), config
        for path, module in mine.named_modules():
            if not isinstance(module, Activation):
                described = class_name(model_type, module.transformers_class)
                assert described.rpartition(".")[2] == type(theirs[path]).__qualname__, (config, path)
        compared += 1
    assert compared


LLAMA = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
TRUNK = 512 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64) + 64
"""The table, 2 × (queries and output, keys and values, the MLP, two norms), and the last norm."""


@pytest.fixture
def planned(tmp_path):
    def plan(**fields: Any) -> Any:
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **fields}))
        return from_file(tmp_path)

    return plan


@pytest.mark.parametrize(
    ("fields", "loss", "parameters"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "next-token cross-entropy", TRUNK + 512 * 64),
        ({"architectures": ["LlamaForSequenceClassification"]}, "sequence classification cross-entropy", TRUNK + 2 * 64),
        ({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}},
         "sequence classification cross-entropy", TRUNK + 3 * 64),
        ({"architectures": ["LlamaForSequenceClassification"], "num_labels": 1},
         "mean squared error of one value a sequence", TRUNK + 64),
        ({"architectures": ["LlamaForTokenClassification"], "num_labels": 9}, "token classification cross-entropy",
         TRUNK + 9 * 65),
        ({"architectures": ["LlamaModel"]}, "none", TRUNK),
    ],
)  # fmt: skip
def test_the_model_says_which_it_is(planned, fields, loss, parameters):
    found = planned(**fields)
    assert (found.architecture, found.loss, found.parameters) == (fields["architectures"][0], loss, parameters)
    assert bool(found.unplanned) == fields["architectures"][0].endswith(BARE)
    by_default = "architectures" in fields and len(fields) == 1 and "Classification" in found.architecture
    assert ("num_labels 2 (transformers' default)" in found.assumed) == by_default
    alone = any("pad_token_id" in said for said in found.assumed)
    assert alone == ("ForSequence" in found.architecture)


@pytest.mark.parametrize(
    ("fields", "fragment"),
    [
        ({"num_labels": 0}, "num_labels = 0"),
        ({"num_labels": "2"}, "num_labels = '2'"),
        ({"num_labels": 3, "id2label": {"0": "a"}}, "num_labels = 3 with 1 names"),
        ({"id2label": ["a"]}, "id2label"),
        ({"problem_type": "multi_label_classification"}, "multi_label_classification"),
        ({"problem_type": "regression", "num_labels": 3}, "regression"),
        ({"classifier_dropout": 2}, "classifier_dropout = 2"),
        ({"output_router_logits": True}, "output_router_logits"),
    ],
    ids=str,
)
def test_heads_that_cannot_be_planned(planned, fields, fragment):
    kind = "ForTokenClassification" if "classifier_dropout" in fields else "ForSequenceClassification"
    with pytest.raises(SpecError) as refused:
        planned(architectures=[f"Llama{kind}"], **fields)
    assert fragment in str(refused.value)


def test_berts_class_and_is_decoder_mean_the_same_model(tmp_path):
    for fields in ({"architectures": ["BertLMHeadModel"]}, {"architectures": ["BertForMaskedLM"], "is_decoder": True}):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **fields}))
        with pytest.raises(ZeroplanError, match="is_decoder"):
            from_file(tmp_path)
