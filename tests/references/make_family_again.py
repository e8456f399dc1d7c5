"""The recorded cases of one family, measured anew where transformers has changed its modules.

python -m tests.references.make_family_again FAMILY [FOLDER]

Its cases are drawn again by each maker of training steps, so that they are what such a file would have now, and those of
DeepSpeed's runs are run again as they are. They take the places of those that the family has, and each of them says with
what versions it was measured. FOLDER is flash-attn's source distribution, unpacked; without it those cases stay as they
are. Needs torch, transformers, DeepSpeed and g++.
"""

import json
import sys
import warnings
from pathlib import Path

from tests.references import (
    make_activation_reference,
    make_autocast_reference,
    make_checkpointing_reference,
    make_flash_reference,
    make_flops_reference,
    make_frozen_reference,
    make_selective_reference,
)
from tests.references.activation_draws import FAMILIES
from tests.references.make_deepspeed_reference import STEPS, compact, line
from zeroplan.verify.measure import measure

SEED = "1"
DRAWING = (
    make_autocast_reference, make_activation_reference, make_checkpointing_reference, make_frozen_reference,
    make_selective_reference, make_flops_reference, make_flash_reference,
)  # fmt: skip
"""Autocast's device has to be there before torch runs any backward; the frozen cases are made of the two before them."""
RUNS = "*_0.19.8.json"


def family_of(row):
    return (row.get("config") or row["case"]["model"])["model_type"]


def replaced(target, family, name, made):
    """That list of the file, whose lines stay as they are but for the family's, which come at its place."""
    texts = target.read_text().splitlines()
    start = next(at for at, text in enumerate(texts) if text.startswith(f'"{name}": ['))
    if texts[start].endswith("]"):
        return
    end = next(at for at, text in enumerate(texts) if at > start and text.startswith("]"))
    rows = [text.rstrip(",") for text in texts[start + 1 : end]]
    found = [at for at, row in enumerate(rows) if family_of(json.loads(row)) == family]
    if found and len(found) == len(made):
        for at, row in zip(found, made, strict=True):
            rows[at] = line(row)
    else:
        others = [row for at, row in enumerate(rows) if at not in found]
        before = [row for row in others if FAMILIES.index(family_of(json.loads(row))) < FAMILIES.index(family)]
        rows = [*before, *map(line, made), *others[len(before) :]]
    texts[start + 1 : end] = ",\n".join(rows).splitlines()
    target.write_text("\n".join(texts) + "\n")


def drawn(maker, family):
    """As many as each of the other families has."""
    if maker is make_frozen_reference:
        every = maker.cases
        maker.cases = lambda: (case for case in every() if family_of(case) == family)
        return maker.measured()
    rows = json.loads(maker.TARGET.read_text())["measured"]
    maker.FAMILIES = (family,)
    return maker.cases(len(rows) // len({family_of(row) for row in rows}), SEED)


def draw_again(family, folder):
    for maker in DRAWING:
        if maker is make_flash_reference:
            if not folder:
                continue
            maker.install(folder)
        versions = maker.head()["versions"]
        made = [{**row, "versions": versions} for row in drawn(maker, family)]
        replaced(maker.TARGET, family, "measured", made)
        print(maker.TARGET.name, len(made), flush=True)


def run_again(family):
    for target in sorted(Path(__file__).parent.glob(RUNS)):
        known = json.loads(target.read_text())
        rows = [row for row in known.get("measured", ()) if family_of(row) == family]
        made = []
        for row in rows:
            run = measure({"steps": STEPS, **row["case"], "mode": "meta"})
            assert not {"failed", "refused"} & set(run), run
            made.append({**compact(run), "versions": run["versions"]})
        if rows:
            replaced(target, family, "measured", made)
            print(target.name, len(made), flush=True)


def main(family, folder=""):
    warnings.simplefilter("ignore")
    run_again(family)
    draw_again(family, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
