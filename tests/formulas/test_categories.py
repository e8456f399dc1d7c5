"""What was counted says what it is, where that is read, and is used; the places that sources name exist."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from pkgutil import iter_modules

import pytest

from zeroplan import formulas
from zeroplan.categories import ActivationCategory, Category
from zeroplan.formulas import copied, states, transient_stage_3
from zeroplan.ledger import is_activation, line, provenance
from zeroplan.sources import DEEPSPEED, SOURCES

PACKAGE = Path(formulas.__file__).parent.parent
MODULES = [import_module(f"{formulas.__name__}.{info.name}") for info in iter_modules(formulas.__path__)]
TABLES = {
    (module.__name__.rpartition(".")[2], name): value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, Category)
}
FORMULAS = {
    (module.__name__.rpartition(".")[2], name): value
    for module in MODULES
    for name, value in vars(module).items()
    if isfunction(value) and value.__module__ == module.__name__ and name != "power_of_two"
}


def idents(entry) -> str:
    return ".".join(entry)


@pytest.mark.parametrize("entry", TABLES, ids=idents)
def test_a_category_is_named_as_its_entry_and_has_meaning_and_source(entry):
    category = TABLES[entry]
    assert category.name.lower().replace(" ", "_") == entry[1]
    assert len(category.meaning.split()) >= 3
    assert not category.meaning.endswith(".")
    assert category.source.partition(" ")[0] in SOURCES
    assert provenance(category).meaning == category.meaning


def test_no_two_categories_mean_the_same():
    meanings = [category.meaning for category in TABLES.values()]
    assert len(meanings) == len(set(meanings))


def test_every_category_is_used():
    """By its attribute where a line is made; kinds of activations by their names in the model's timeline."""
    used, kinds = set(), set()
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        tables = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == formulas.__name__:
                tables |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{formulas.__name__}."):
                used |= {(node.module.rpartition(".")[2], alias.name) for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in tables:
                used.add((tables[node.value.id], node.attr))
            elif isinstance(node, ast.Constant) and file.parent.name in ("architectures", "autograd"):
                kinds.add(node.value)
    by_kind = {key for key, category in TABLES.items() if isinstance(category, ActivationCategory) and category.name in kinds}
    assert not TABLES.keys() - used - by_kind


def test_a_line_says_what_was_counted():
    """500,000,000 elements of 2 bytes; a flag of 1; buffers of 256 bytes."""
    gradients = line("gradients", transient_stage_3.gradients, "bfloat16", alive=500_000_000, w=2)
    assert gradients.bytes == 1_000_000_000
    assert gradients.formula == "bytes of one × elements that the replay finds alive at that moment"
    assert gradients.worked == "2 bytes × 500,000,000 elements"
    flag = line("flag", copied.overflow_flag, "uint8", tensors=1, w=1)
    assert (flag.bytes, flag.worked) == (1, "1 byte × 1 tensor")
    buffers = line("model buffers", states.model_buffers, "float32", size=256)
    assert (buffers.bytes, buffers.worked) == (256, "256 bytes")


def test_a_category_takes_one_count():
    with pytest.raises(ValueError, match="unpack"):
        transient_stage_3.gradients(alive=2, moved=2, w=2)


def test_activations_are_the_models_own():
    for (module, _name), category in TABLES.items():
        assert is_activation(line("", category, size=1)) == (module == "activations")


PLACED = {key: provenance(rule) for key, rule in (FORMULAS | TABLES).items()}
INSTALLED = {"DeepSpeed": "deepspeed", "torch": "torch", "transformers": "transformers"}
NOT_INSTALLED = re.compile(r"\.(cpp|h)\b|derivatives\.yaml|native_layer_norm|int64|before 4\.48|since #")
"""Sources of torch that its wheel leaves out, a dtype, and files as other versions had them."""


@pytest.mark.parametrize("entry", [key for key, origin in PLACED.items() if origin.source in INSTALLED], ids=idents)
def test_a_place_is_a_file_of_the_library_and_a_name_in_it(entry):
    """`path/file.py:name, name`, from the library's folder or the one that it lies in."""
    origin = PLACED[entry]
    spec = find_spec(INSTALLED[origin.source])
    if spec is None or NOT_INSTALLED.search(origin.place):
        pytest.skip("is not installed")
    (folder,) = map(Path, spec.submodule_search_locations)
    if origin.source == "DeepSpeed" and version("deepspeed") != DEEPSPEED:
        pytest.skip(f"another version than {DEEPSPEED}")
    path, _, names = origin.place.partition(":")
    (file,) = [found for found in (folder / path, folder.parent / path, folder / "ops" / path) if found.exists()][:1]
    for name in filter(None, names.split(", ")):
        assert re.search(rf"\bdef {name}\(|\b{name} = ", file.read_text(encoding="utf-8")), f"{name} in {path}"

