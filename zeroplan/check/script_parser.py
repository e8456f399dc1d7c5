"""What a training script does with its options: those at which its parser stops, one of argparse's whose arguments all
stand in its file, and the accumulation that its own Accelerator asks for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from zeroplan.check.python_nodes import last_name, parsed

OTHERS = (
    "HfArgumentParser", "TrlParser", "parse_known_args", "add_subparsers", "sys.argv", "parse_intermixed_args",
    "add_argparse_args", "from_argparse_args", "tyro", "import click", "typer", "import fire", "hydra", "absl",
    "simple_parsing", "jsonargparse", "configargparse", "LightningCLI", "prefix_chars", "parents=",
    "BooleanOptionalAction",
)  # fmt: skip
"""What a file has whose options are not known by its calls of add_argument alone."""
OF_DEEPSPEED = ("--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config")
"""Options that deepspeed.add_config_arguments adds (0.19.8 __init__.py:_add_core_arguments)."""
Option = tuple[list[str], bool]
"""The names of an option, and whether it is required."""
PRECISIONS = ("no", "fp16", "bf16", "fp8")
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.Match, ast.Try)
LOCAL_RANK = "--local_rank"
"""What DeepSpeed's launcher hands each process (launcher/launch.py), but for --no_local_rank."""


def unrecognized(code: str, options: Sequence[str], *, has_local_rank: bool) -> str:
    """The first option that the script's parser does not take; "" for none, and where that is not known. `code`: the
    script; `has_local_rank`: whether DeepSpeed's launcher starts it.
    """
    given = [LOCAL_RANK] * has_local_rank + [option.partition("=")[0] for option in options]
    taken = ([name for names, _needed in parser for name in names] for parser in _parsers_of(_with_own_parser(code)))
    return next((option for known in taken for option in given if not any(one.startswith(option) for one in known)), "")


def missing(code: str, options: Sequence[str]) -> str:
    """The first option that the script's parser requires and is not given; "" for none, and where that is not known."""
    given = [option.partition("=")[0] for option in options]
    several = (names for parser in _parsers_of(_with_own_parser(code)) for names, needed in parser if needed)
    return next((names[-1] for names in several if not _is_given(names, given)), "")


def _is_given(names: Sequence[str], given: Sequence[str]) -> bool:
    """Whether an option is there, by one of its names or the beginning of one."""
    return any(name == one or (name.startswith(one) and one.startswith("--")) for name in names for one in given)


def invalid_choice(code: str, options: Mapping[str, str | None]) -> tuple[str, list[str]] | None:
    """The first option with a value that is none of its choices, and these. `options`: what the script is given."""
    tree = _with_own_parser(code)
    calls = () if tree is None else (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for call in calls:
        choices = next((one.value for one in call.keywords if one.arg == "choices"), None)
        texts = [getattr(one, "value", None) for one in getattr(choices, "elts", ())]
        names = [str(getattr(one, "value", "")) for one in call.args]
        name = next((name for name in names if options.get(name)), "")
        kinds = [last_name(one.value) for one in call.keywords if one.arg in ("type", "nargs", "action")]
        is_text = bool(texts) and all(isinstance(text, str) for text in texts) and kinds in ([], ["str"])
        if last_name(call.func) == "add_argument" and is_text and name and options[name] not in texts:
            return name, [str(text) for text in texts]
    return None


def _with_own_parser(code: str) -> ast.Module | None:
    """The tree of a script whose options all stand in calls of add_argument; None for another."""
    if "ArgumentParser(" not in code or ".parse_args()" not in code or any(word in code for word in OTHERS):
        return None
    return parsed(code)


def _parsers_of(tree: ast.Module | None) -> list[list[Option]]:
    """The options of the one parser of a file, or of each that a function of it makes and lets read the whole line."""
    if tree is None:
        return []
    whole = _options(list(ast.walk(tree)))
    if whole is not None:
        return [whole]
    parts = [list(ast.walk(node)) for node in tree.body if isinstance(node, ast.FunctionDef) and _is_run(node, tree)]
    return [known for nodes in parts if (known := _options(nodes)) is not None and _reads_the_line(nodes)]


def _is_run(function: ast.FunctionDef, tree: ast.Module) -> bool:
    """Whether the file calls a function of its own, and on no condition but that it is the script."""
    return any(isinstance(node, ast.Call) and last_name(node.func) == function.name for node in _unconditional(tree))


def _unconditional(tree: ast.Module) -> Iterator[ast.AST]:
    """What stands in no branch and no loop."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        below = [one for one in ast.iter_child_nodes(waiting.pop()) if not isinstance(one, BRANCHES) or _is_main(one)]
        yield from below
        waiting += below


def _is_main(node: ast.AST) -> bool:
    """Whether it is the condition that the file is the script."""
    return isinstance(node, ast.If) and getattr(getattr(node.test, "left", None), "id", "") == "__name__"


def _reads_the_line(nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(node, ast.Call) and last_name(node.func) == "parse_args" and not (node.args or node.keywords)
               for node in nodes)  # fmt: skip


def _options(nodes: Sequence[ast.AST]) -> list[Option] | None:
    """All that the one parser takes; None where there are several, or other code may add to it."""
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    names, parsers = [last_name(call.func) for call in calls], _parsers(nodes)
    called = [call.func for call in calls]
    handed_on = any(isinstance(node, ast.Attribute) and node.attr == "add_argument" and node not in called
                    for node in nodes)  # fmt: skip
    if names.count("ArgumentParser") != 1 or handed_on or any(_takes(call, parsers) for call in calls):
        return None
    by_deepspeed = OF_DEEPSPEED if "add_config_arguments" in names else ()
    stated: list[Option] = [([name], False) for name in by_deepspeed]
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            texts = [getattr(one, "value", None) for one in call.args]
            if not texts or not all(isinstance(text, str) for text in texts):
                return None
            needed = any(one.arg == "required" and getattr(one.value, "value", None) is True for one in call.keywords)
            stated.append(([str(text) for text in texts], needed))
    return stated


def _parsers(nodes: Sequence[ast.AST]) -> set[str]:
    """Names of the parser, and of groups of its arguments."""
    made = ("ArgumentParser", "add_argument_group", "add_mutually_exclusive_group", "add_config_arguments")
    named = [(node.value, target) for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    return {last_name(target) for value, target in named
            if isinstance(value, ast.Call) and last_name(value.func) in made}  # fmt: skip


def _takes(call: ast.Call, parsers: set[str]) -> bool:
    """Whether a call is given a parser, and may add to it."""
    values = (*call.args, *(one.value for one in call.keywords))
    is_given = any(last_name(value) in parsers for value in values)
    return is_given and last_name(call.func) != "add_config_arguments"


ACCELERATOR = re.compile(r"\bAccelerator\((?:[^()]|\([^()]*\))*?\bgradient_accumulation_steps\s*=\s*([\w.]+)")
CLIPS = re.compile(r"\baccelerator\.clip_grad_norm_\((?:[^(),]|\([^()]*\))*,\s*(?:max_norm\s*=\s*)?([\w.]+)\s*[,)]")
COMMENT = re.compile(r"#[^\n]*")
DEFAULT = r"add_argument\(\s*[\"']--{}[\"'][^)]*?\bdefault\s*=\s*(\d+)"


def clipped(code: str) -> str:
    """The norm to which a script asks its Accelerator to clip, as the call has it; "" where it asks for none."""
    match = CLIPS.search(COMMENT.sub("", code))
    return "" if match is None else match[1]


def asked_precision(code: str, options: Mapping[str, str | None]) -> str | None:
    """The mixed precision that a script's only Accelerator asks for in a word, or by an option; None where none does.
    `options`: what the script is given.
    """
    tree = parsed(code) if "mixed_precision" in code else None
    calls = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call)
                                     and last_name(node.func) == "Accelerator"]  # fmt: skip
    values = [one.value for call in calls for one in call.keywords if one.arg == "mixed_precision"]
    value = values[0] if len(calls) == len(values) == 1 else None
    stated = getattr(value, "value", None) if isinstance(value, ast.Constant) else _by_option(value, tree, options)
    return stated if stated in PRECISIONS else None


def _by_option(value: ast.expr | None, tree: ast.Module | None, options: Mapping[str, str | None]) -> str | None:
    """What args.mixed_precision stands for: the option, or its default."""
    if not isinstance(value, ast.Attribute) or tree is None:
        return None
    option = f"--{value.attr}"
    if option in options:
        return options[option]
    added = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) == "add_argument"
             and any(getattr(one, "value", None) == option for one in node.args))  # fmt: skip
    defaults = (one.value for call in added for one in call.keywords if one.arg == "default")
    return next((str(getattr(one, "value", "")) for one in defaults), None)


def accumulated(code: str, options: Mapping[str, str | None]) -> int | None:
    """Micro-batches of a step that a script's own Accelerator asks for; None where it builds none, or that is not
    known. `options`: what the script is given.
    """
    match = ACCELERATOR.search(COMMENT.sub("", code))
    if match is None:
        return None
    if match[1].isdecimal():
        return int(match[1])
    name = match[1].rpartition(".")[2]
    if f"--{name}" in options:
        stated = options[f"--{name}"]
    else:
        usual = re.search(DEFAULT.format(name), code)
        stated = usual and usual[1]
    return int(stated) if stated is not None and stated.isdecimal() else None
