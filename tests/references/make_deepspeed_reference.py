"""Measurements of `zeroplan verify --save` or `zeroplan.verify.measure` joined into deepspeed_0.19.8.json.

python tests/references/make_deepspeed_reference.py [--into NAME] MEASURED.json ...          the file made anew
python tests/references/make_deepspeed_reference.py [--into NAME] --add MEASURED.json ...    beside what it has

With --add a case that the file has already is replaced where it stands, and no other line changes. NAME is another
file beside this script, zenflow_0.19.8.json for one.
"""

import json
import sys
from pathlib import Path

from zeroplan.verify.compare import KEPT, MODEL

TARGET = Path(__file__).with_name("deepspeed_0.19.8.json")
FROZEN = "frozen_0.19.8.json"
LEFT_OUT = ("steps", "activations", "seed", "mode")
STEPS = 3
SECTION = "activation_checkpointing"
"""Whose runs say what the host holds over a micro-step."""


def last(run):
    """The optimizer step that is looked at."""
    return run["case"].get("steps", STEPS)


def held(run):
    found = {}
    for entry in run["held"]:
        if entry["kind"] != "inputs" and not entry["kind"].startswith(KEPT):
            tier = found.setdefault(entry["tier"], {})
            tier[entry["dtype"]] = tier.get(entry["dtype"], 0) + entry["bytes"]
    return found


def traffic(run):
    found = {}
    for entry in run["traffic"]:
        if entry["step"] == last(run) and entry["collective"] != "barrier":
            group = "" if entry["ranks"] == run["case"]["world"] else f" of {entry['ranks']}"
            sums = found.setdefault(f"{entry['collective']} {entry['dtype']}{group}", [0, 0])
            sums[0] += entry["calls"]
            sums[1] += entry["bytes"]
    return found


def peaks(run):
    """Most bytes of each phase, less activations and with them; the step is that of the last micro-step."""
    boundary = max(phase["micro"] for phase in run["phases"])
    found = {}
    for phase in run["phases"]:
        if phase["step"] in (0, last(run)) and (phase["phase"] != "step" or phase["micro"] == boundary):
            most = found.setdefault(phase["phase"], [0, 0])
            most[0] = max(most[0], phase["peak"]["gpu_less_activations"])
            most[1] = max(most[1], phase["peak"]["gpu"])
    return found


def any_step(run):
    """Most bytes of forward and backward, less activations, over all steps."""
    found = {}
    for phase in run["phases"]:
        if phase["phase"] in ("forward", "backward"):
            most = phase["peak"]["gpu_less_activations"]
            found[phase["phase"]] = max(found.get(phase["phase"], 0), most)
    return found


WAYS = {"to_gpu": "host to gpu", "to_host": "gpu to host", "read": "nvme to host", "write": "host to nvme"}


def copies(run):
    """Bytes of the last optimizer step between the tiers."""
    found = {}
    for entry in [*run["pcie_traffic"], *run["disk_traffic"]]:
        read = run["case"].get("recording") and entry.get("asked_by") == MODEL  # sizes that the model asks for
        if entry["step"] == last(run) and not read:
            found[WAYS[entry["way"]]] = found.get(WAYS[entry["way"]], 0) + entry["bytes"]
    return found


def hosted(run):
    """Of the last step: bytes on the host when forward has returned, and most in forward and in backward."""
    found = {}
    for phase in run["phases"]:
        if phase["step"] == last(run) and phase["phase"] in ("forward", "backward"):
            found[phase["phase"]] = max(found.get(phase["phase"], 0), phase["peak"]["host"])
            if phase["phase"] == "forward":
                found["saved"] = phase["after"]["host"] + phase["after"]["host_pinned"]
    return found


def compact(run):
    files = {"optimizer" if entry["folder"] == "optimizer" else "parameters": entry["bytes"] for entry in run["files"]}
    case = {name: value for name, value in run["case"].items() if name not in LEFT_OUT}
    return {
        "case": {**case, **({"steps": last(run)} if last(run) != STEPS else {})},
        "held": held(run), "traffic": traffic(run), "peaks": peaks(run), "any_step": any_step(run), "activations": run.get("activations"),
        **({"hosted": hosted(run)} if case["checkpointing"] == "deepspeed" and SECTION in case["ds_config"] else {}),
        **({"files": files} if files else {}), **({"copies": copies(run)} if "pcie_traffic" in run else {}),
    }  # fmt: skip


HEAD = {
    "held": "bytes between steps by tier and dtype, inputs aside",
    "traffic": "calls and bytes of the last optimizer step, the third unless steps says more, by collective and dtype",
    "copies": "bytes of the same step between GPU, host and NVMe",
    "peaks": "most bytes on the GPU by phase: less activations, and with them",
    "hosted": "bytes on the host with activation_checkpointing: when forward has returned, most in forward and backward",
    "any_step": "most bytes of forward and backward less activations, the first steps included",
}


def line(entry):
    return json.dumps(entry, separators=(",", ":"))


def case_of(entry):
    """What tells one case from another; a refused one keeps what it was measured with."""
    return line({name: value for name, value in entry["case"].items() if name not in LEFT_OUT})


def recorded(target):
    """The file's head, and its lines: measured and refused."""
    known = json.loads(target.read_text())
    lines = {name: [] for name in ("measured", "refused")}
    found = None
    for text in target.read_text().splitlines():
        if text.endswith("[") and text.split('"')[1] in lines:
            found = lines[text.split('"')[1]]
        elif found is not None and text.startswith("{"):
            found.append(text.rstrip(","))
    assert {name: len(texts) for name, texts in lines.items()} == {name: len(known[name]) for name in lines}
    return known, lines


def joined(texts, entries):
    """Lines by case: an entry takes the place of the one with its case, or the end."""
    by_case = {case_of(json.loads(text)): text for text in texts}
    return [*(by_case | {case_of(entry): line(entry) for entry in entries}).values()]


def is_for(target, case):
    """Runs in which something is frozen have a file of their own, but for what a recorded class freezes itself."""
    return "recording" in case or bool(case.get("freeze")) == (target.name == FROZEN)


def main(paths):
    add = "--add" in paths
    paths = [path for path in paths if path != "--add"]
    target = TARGET
    if paths[0] == "--into":
        target, paths = TARGET.with_name(paths[1]), paths[2:]
    runs = [json.loads(Path(path).read_text()) for path in paths]
    stopped = [
        {"case": run["case"], "refused": run["refused"].splitlines()[-1][:300]} for run in runs if "refused" in run
    ]
    ran = [run for run in runs if "refused" not in run and "failed" not in run and is_for(target, run["case"])]
    versions, date = runs[0]["versions"], max(run["date"] for run in runs)
    lines = {"measured": [], "refused": []}
    if add:
        known, lines = recorded(target)
        versions, date = known["versions"], max(date, known["date"])
    assert all(run["versions"] == versions for run in runs)
    head = {"versions": versions, "date": date, **HEAD}
    cases, stopped = joined(lines["measured"], map(compact, ran)), joined(lines["refused"], stopped)
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    parts += ['"measured": [\n' + ",\n".join(cases) + "\n]", '"refused": [\n' + ",\n".join(stopped) + "\n]"]
    target.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(len(cases), len(stopped), target.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
