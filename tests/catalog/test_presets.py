"""Every preset loads, each number says where it comes from, and counts are transformers' own."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.conftest import REFERENCES
from zeroplan.architectures.read import config_class, known_fields
from zeroplan.catalog import hardware, presets
from zeroplan.catalog.models import from_preset
from zeroplan.errors import QuantityError, UnknownNameError

MODELS = {row["preset"]: row for row in csv.DictReader((REFERENCES / "models.csv").read_text().splitlines())}
EVIDENCE = {"measured", "datasheet", "published", "assumed"}
NAMED_GPUS = {
    "t4", "v100-16gb", "v100-32gb", "rtx-3090", "rtx-4090", "rtx-5090", "a10g", "l4", "l40s", "a6000", "a100-40gb",
    "a100-80gb", "h100-pcie", "h100-80gb", "h100-nvl", "h200", "gh200", "b200", "mi250x", "mi300x", "gaudi2", "gaudi3",
    "a800", "h800", "h20", "l20", "l40", "a40", "rtx-a5000", "rtx-4080", "rtx-3090-ti", "rtx-5080",
}  # fmt: skip
NAMED_CLUSTERS = ["dgx-1", "dgx-a100", "dgx-h100", "p3.16xlarge", "p4d", "p4de", "p5", "a2-highgpu", "a3", "nd-a100-v4",
                  "consumer"]  # fmt: skip


def content(kind: str, name: str) -> dict[str, Any]:
    return json.loads((presets.PRESETS / presets.KINDS[kind] / f"{name}.json").read_text())


def figures(node: object, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every mapping with a `value`, by path."""
    if not isinstance(node, dict):
        return []
    if "value" in node:
        return [(path, node)]
    return [found for key, child in node.items() for found in figures(child, f"{path}.{key}")]


def test_there_are_enough():
    assert len(presets.names("GPU")) >= 25
    assert len(presets.names("cluster")) >= 10
    assert len(presets.names("model")) >= 60
    assert set(presets.names("GPU")) >= NAMED_GPUS


@pytest.mark.parametrize("name", NAMED_CLUSTERS)
def test_clusters_people_name(name):
    assert hardware.cluster(name).capacity


@pytest.mark.parametrize("name", presets.names("model"))
def test_model_counts_are_transformers_own(name):
    model, reference = from_preset(name), MODELS[name]
    assert model.parameters == int(reference["total_params"]) == content("model", name)["parameters"]
    assert len(model.tensors) == int(reference["n_tensors"])
    assert model.largest.elements == int(reference["largest_tensor"])
    sizes = {tensor.name: tensor.elements for tensor in model.tensors}
    assert sizes[reference["largest_tensor_name"]] == model.largest.elements


@pytest.mark.parametrize("name", presets.names("model"))
def test_model_fields_have_the_types_their_family_declares(name):
    fields = content("model", name)["config"]
    kind = config_class(fields["model_type"], name)
    TypeAdapter(kind).validate_python(known_fields(fields, name))


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in ("GPU", "cluster") for n in presets.names(k)])
def test_each_number_has_source_date_and_evidence(kind, name):
    found = figures(content(kind, name))
    assert found
    for path, figure in found:
        assert figure["source"].strip(), path
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", str(figure["date"])), path
        assert figure["evidence"] in EVIDENCE, path


@pytest.mark.parametrize("name", presets.names("GPU"))
def test_gpu_shows_at_most_what_is_on_the_box(name):
    card = hardware.gpu(name)
    assert 0.85 * card.memory_class * 10**9 <= card.memory.value <= card.memory_class * 2**30
    assert card.sustained_matmul
    assert card.sustained_matmul.value <= max(figure.value for figure in card.peak.values())


@pytest.mark.parametrize("gigabytes", hardware.classes())
def test_one_card_stands_for_each_size(gigabytes):
    matching = [n for n in presets.names("GPU") if content("GPU", n).get("class_default")]
    same = [n for n in matching if content("GPU", n)["memory_class"] == gigabytes]
    assert [hardware.gpu_of_class(gigabytes).name] == same


def test_an_80_gb_card_shows_about_79_2_gib():
    assert hardware.gpu_of_class(80).memory.value == pytest.approx(79.2 * 2**30, rel=0.002)


@pytest.mark.parametrize("kind", presets.KINDS)
def test_names_and_aliases_are_unique(kind):
    every = [*presets.names(kind)]
    for name in presets.names(kind):
        every += [alias.lower() for alias in content(kind, name).get("aliases") or []]
    assert len(every) == len(set(every))
    for name in presets.names(kind):
        assert presets.load(kind, name)[0] == name
        assert {presets.load(kind, alias)[0] for alias in content(kind, name).get("aliases") or []} <= {name}


@pytest.mark.parametrize("kind", presets.KINDS)
def test_every_spelling_names_one_preset(kind):
    """With its publisher and without."""
    for name in presets.names(kind):
        found = content(kind, name)
        for spelling in (*(found.get("aliases") or ()), *found.get("repositories", ())):
            assert presets.load(kind, spelling)[0] == name
            assert presets.load(kind, spelling.rpartition("/")[2].replace("-", "_").upper())[0] == name


@pytest.mark.parametrize("name", [name for name in presets.names("model") if "repositories" in content("model", name)])
def test_a_repository_has_its_preset_s_sizes_and_says_where_that_is_known_from(name):
    found = content("model", name)
    assert found["repositories_source"]
    for repository, differs in found["repositories"].items():
        assert from_preset(repository).parameters == found["parameters"]
        assert all(found["config"][field] != value for field, value in differs.items())


def test_short_names_of_cards_name_others_that_there_are():
    for name in presets.names("GPU"):
        for short, others in content("GPU", name).get("usual_of", {}).items():
            assert presets.usual_of("GPU", short) == tuple(others)
            assert presets.load("GPU", short)[0] == name
            assert set(others) <= set(presets.names("GPU")) - {name}


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("A800", "a800"), ("h800", "h800"), ("NVIDIA H20", "h20"), ("l20", "l20"), ("L40", "l40"), ("A40", "a40"), ("a5000", "rtx-a5000"),
        ("RTX A5000", "rtx-a5000"), ("rtx 4080", "rtx-4080"), ("4080", "rtx-4080"), ("RTX_4080", "rtx-4080"), ("3090ti", "rtx-3090-ti"),
        ("RTX 3090 Ti", "rtx-3090-ti"), ("NVIDIA GeForce RTX 5080", "rtx-5080"), ("rtx 4090", "rtx-4090"), ("A100 SXM4 80GB", "a100-80gb"),
    ],
)  # fmt: skip
def test_cards_in_any_usual_spelling(typed, name):
    assert hardware.gpu(typed).name == name


def test_export_variants_differ_from_their_chip_in_nvlink():
    """400 GB/s both ways, half each way: https://aiwiki.ai/wiki/nvidia_a800 and the pages that the presets name."""
    for variant, chip in (("a800", "a100-80gb"), ("h800", "h100-80gb")):
        ours, theirs = hardware.gpu(variant), hardware.gpu(chip)
        assert ours.link.value == 200e9 < theirs.link.value
        assert {key: figure.value for key, figure in ours.peak.items()} == {key: figure.value for key, figure in theirs.peak.items()}
        assert ours.memory_bandwidth.value == theirs.memory_bandwidth.value


def test_an_alias_and_any_case_find_the_preset():
    assert from_preset("meta-llama/Llama-3.1-8B").name == "llama-3.1-8b"
    assert hardware.gpu("H100").name == "h100-80gb"


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownNameError, match=r"llama-3\.1-8b"):
        presets.load("model", "lama-3.1-8b")
    with pytest.raises(QuantityError, match="81GiB"):
        hardware.gpu_of_class(81)
