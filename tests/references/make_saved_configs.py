"""What transformers writes into config.json for each preset, and each family's class on its own, into saved_configs.json.

python -m tests.references.make_saved_configs

`presets` holds save_pretrained's file (to_diff_dict) of each preset's config, which is what a model's repository has;
`classes` every attribute of each described family's config class (to_dict) with its default. Needs transformers.
"""

import json
from datetime import date
from pathlib import Path

from zeroplan.architectures.registry import FAMILIES
from zeroplan.catalog import presets

TARGET = Path(__file__).with_name("saved_configs.json")


def main():
    import transformers

    transformers.logging.set_verbosity_error()

    def saved(content):
        fields = dict(content)
        config = transformers.CONFIG_MAPPING[fields.pop("model_type")](**fields)
        return json.loads(config.to_json_string(use_diff=True))

    written = {name: saved(presets.load("model", name)[1]["config"]) for name in presets.names("model")}
    classes = {name: json.loads(transformers.CONFIG_MAPPING[name]().to_json_string(use_diff=False)) for name in FAMILIES}
    head = {"transformers": transformers.__version__, "date": date.today().isoformat()}
    lines = [f'"{key}": {json.dumps(value)},' for key, value in head.items()]
    for key, configs in (("presets", written), ("classes", classes)):
        body = ",\n".join(f"{json.dumps(name)}: {json.dumps(config, sort_keys=True)}" for name, config in configs.items())
        lines.append(f'"{key}": {{\n{body}\n}},')
    TARGET.write_text("{\n" + "\n".join(lines).removesuffix(",") + "\n}\n")


if __name__ == "__main__":
    main()
