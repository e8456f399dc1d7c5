"""An example of a rule as `zeroplan check` would be asked for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from zeroplan.check.any_file import check_file
from zeroplan.check.arguments import read_arguments
from zeroplan.check.named_config import check_arguments
from zeroplan.check.rule import BESIDE
from zeroplan.request.check_setting import read_inputs, setting_of
from zeroplan.request.options import Options

OWN = ("reader", "accelerator", "version", "client_optimizer", "upgrade", "transformers", "accelerate")


@cache
def found(example):
    options = dict(example.options)
    arguments = None
    if text := options.pop("trainer_args", None):
        arguments = read_arguments(*text.split(": ", 1))
    own = {name: options.pop(name) for name in OWN if name in options}
    trl = options.pop("trl", None)  # no option: what a project asks for says it
    known = read_inputs(Options(**options), arguments=arguments, **own)
    known = known._replace(setting=replace(known.setting, trl=trl))
    checked = check_file(
        example.file, example.text, known.setting, lambda path: (path, example.beside or BESIDE), partial(setting_of, known)
    )
    return [*(check_arguments(arguments, known.setting) if arguments else ()), *checked.findings]
