"""Which modules DeepSpeed's settings make leaves of stage 3."""

from __future__ import annotations

from typing import Any

import pytest

from tests.architectures.test_execution import TINY, build
from zeroplan.architectures.leaves import class_name, leaf_paths
from zeroplan.specs.model import LeafModules

MIXTRAL: dict[str, Any] = {"model_type": "mixtral", **TINY, "num_hidden_layers": 2, "num_key_value_heads": 2}
BLOCKS = {"model.layers.0.mlp", "model.layers.1.mlp"}


def paths(config: dict[str, Any], **settings: Any) -> set[str]:
    return set(leaf_paths(build(config), config["model_type"], LeafModules(**settings)))


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_defaults(family: str) -> None:
    config = MIXTRAL | {"model_type": family, "moe_intermediate_size": 6}
    assert paths(config) == BLOCKS
    assert paths(config, classes=()) == set()


def test_other_families_have_none_by_default() -> None:
    assert paths({"model_type": "llama", **TINY}) == set()
    assert paths({"model_type": "deepseek_v3", **TINY, "first_k_dense_replace": 0}) == set()


def test_classes_match_bare_and_in_full() -> None:
    for name in ("MixtralSparseMoeBlock", "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock"):
        assert paths(MIXTRAL, classes=(name,)) == BLOCKS
    assert paths(MIXTRAL, classes=("SparseMoeBlock", "modeling_mixtral.MixtralSparseMoeBlock")) == set()


def test_what_is_given_replaces_the_default() -> None:
    assert paths(MIXTRAL, classes=("MixtralAttention",)) == {f"model.layers.{i}.self_attn" for i in range(2)}


def test_names_match_whole_and_suffixes_at_the_end() -> None:
    assert paths(MIXTRAL, classes=(), names=("model.norm", "norm", "layers")) == {"model.norm"}
    assert paths(MIXTRAL, classes=(), name_suffixes=("rm", ".gate")) == {
        "model.norm", *(f"{block}.gate" for block in BLOCKS),
        *(f"model.layers.{i}.{which}_layernorm" for i in range(2) for which in ("input", "post_attention")),
    }  # fmt: skip


def test_every_setting_adds_its_own() -> None:
    assert paths(MIXTRAL, names=("model.norm",)) == {*BLOCKS, "model.norm"}


def test_a_class_of_torch_is_named_in_full() -> None:
    assert class_name("llama", "torch.nn.modules.linear.Linear") == "torch.nn.modules.linear.Linear"
    assert class_name("gemma3_text", "TextModel") == "transformers.models.gemma3.modeling_gemma3.Gemma3TextModel"


def granular(threshold: int) -> set[str]:
    return paths({"model_type": "llama", **TINY, "num_key_value_heads": 2}, granularity_threshold=threshold)


def test_granularity() -> None:
    """Parameters by modules that have some, the module itself among them.

    Attention: 4 · 8 · 8 = 256 by 5; MLP: 3 · 8 · 6 = 144 by 4; layer: 256 + 144 + 2 · 8 = 416 by 12, as it holds
    two norms and the two above; model: 416 + 80 + 8 = 504 by 15; root: 504 + 80 = 584 by 17.
    """
    assert granular(0) == set()
    assert granular(32) == set()
    assert granular(33) == {"model"}
    assert granular(34) == {""}


def test_the_outermost_is_taken_and_large_ones_never() -> None:
    """Layer: 2 · 8 + 256 + 24 · 10^8 is over 10^9, so is the model; attention is not."""
    config = {"model_type": "llama", **TINY, "num_key_value_heads": 2, "intermediate_size": 10**8}
    assert paths(config, granularity_threshold=50) == set()
    assert paths(config, granularity_threshold=51) == {"model.layers.0.self_attn"}
    assert paths(config, granularity_threshold=10**12) == {"model.layers.0.self_attn"}


def test_a_list_of_modules_is_no_leaf_by_granularity() -> None:
    assert "model.layers" not in granular(10**9)
