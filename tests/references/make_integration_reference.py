"""Ask accelerate and transformers what they say of files, for tests/references/check/integration.json:
`python -m tests.references.make_integration_reference DRAWS`. Both packages and DeepSpeed must be installed.

Of a file for `accelerate launch` it is read, handed on as environment variables, and made a plugin, as the launcher and
the `Accelerator` do it, without starting a process; of TrainingArguments the config is filled in and compared.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

from tests.check.integration_draws import launch, trainer
from zeroplan.check.rule import BESIDE
from zeroplan.check.rules import RULES

TARGET = Path(__file__).parent / "check" / "integration.json"
STEPS = 100
"""Of training, of which nothing that is drawn depends."""


def main(draws):
    os.environ.update(DS_BUILD_OPS="0", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", RANK="0", WORLD_SIZE="1",
                      LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")  # fmt: skip
    os.chdir(tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    kept = dict(os.environ)
    launches = [(example.text, json.loads(BESIDE)) for example in examples("accelerate.yaml")]
    launches += [launch(seed) for seed in range(draws)]
    found = {"launch": [], "trainer": []}
    for text, config in launches:
        os.environ.clear()
        os.environ.update(kept)
        found["launch"].append([text, config, said(lambda: launched(text, config))])  # noqa: B023
    os.environ.clear()
    os.environ.update(kept)
    for config, arguments in map(trainer, range(draws)):
        found["trainer"].append([config, arguments, said(lambda: filled(config, arguments))])  # noqa: B023
    versions = {name: importlib.metadata.version(name) for name in ("accelerate", "transformers", "deepspeed")}
    text = json.dumps({"versions": versions, **found}, separators=(",", ":")).replace("],[", "],\n[")
    TARGET.write_text(text + "\n", encoding="utf-8")


def examples(name):
    return [example for rule in RULES.values() for example in (rule.bad, rule.good) if example.file == name]


def said(run):
    try:
        run()
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return ""


def launched(text, config):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    Path("accelerate.yaml").write_text(text, encoding="utf-8")
    Path("ds_config.json").write_text(json.dumps(config), encoding="utf-8")
    arguments = launch_command_parser().parse_args(["--config_file", "accelerate.yaml", "train.py"])
    arguments, defaults, stated = _validate_launch_command(arguments)
    if not arguments.use_deepspeed:
        return
    fields = [*defaults.deepspeed_config, *(["mixed_precision"] if stated else [])]
    arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
    _command, environment = prepare_deepspeed_cmd_env(arguments)
    os.environ.update({name: value for name, value in environment.items() if name.startswith("ACCELERATE")})
    DeepSpeedPlugin().set_mixed_precision(os.environ["ACCELERATE_MIXED_PRECISION"])


def filled(config, arguments):
    from transformers import TrainingArguments

    class Model:
        class config:  # noqa: N801
            hidden_size = 8

    made = TrainingArguments(output_dir="out", use_cpu=True, report_to=[], deepspeed=config, **arguments)
    made.hf_deepspeed_config.trainer_config_finalize(made, Model, STEPS)


if __name__ == "__main__":
    main(int(sys.argv[1]))
