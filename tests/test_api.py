"""The functions say what the commands say: text, --json, errors; numbers are plain, and importing costs nothing."""

from __future__ import annotations

import doctest
import inspect
import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import zeroplan as package
from zeroplan import api
from zeroplan.errors import QuantityError, UnknownNameError, ZeroplanError
from zeroplan.request.options import OPTIONS, Options

ESTIMATE = {"params": "1.3B", "gpus": 8, "gpu_mem": 80}
ONE = {**ESTIMATE, "stage": 3, "micro_batch": 2}
RECOMMEND = {"params": "350M", "gpus": 2, "gpu_mem": 24, "stage": 2, "micro_batch": 1}


def words(values):
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.mark.parametrize("module", [package, api], ids=lambda module: module.__name__)
def test_the_examples_run(module):
    ran = doctest.testmod(module, extraglobs={} if module is package else {"zeroplan": package})
    assert ran.attempted
    assert not ran.failed


@pytest.mark.parametrize(
    ("command", "values"), [("estimate", ESTIMATE), ("estimate", ONE), ("recommend", RECOMMEND)]
)
def test_print_and_to_dict_are_the_command_s(zeroplan, command, values):
    found = getattr(package, command)(**values)
    screen = zeroplan(command, *words(values)).out
    assert str(found) + "\n" == re.sub("^next: .*\n", "", screen, flags=re.MULTILINE)  # of a command alone
    assert found.text(2) + "\n" == zeroplan(command, *words(values), "-vv").out
    assert found.to_dict() == zeroplan(command, *words(values), "--json").json
    json.dumps(found.to_dict())


def test_a_notebook_gets_text_and_colour():
    shown = package.estimate(**ESTIMATE)._repr_mimebundle_(include=None, exclude=None)
    assert shown["text/plain"] == str(package.estimate(**ESTIMATE))
    assert shown["text/html"].startswith("<pre")
    assert "color: #008000" in shown["text/html"]  # what fits is green
    assert repr(package.estimate(**ESTIMATE)).startswith("<Estimate: 1.3B on 8 GPUs: ")


def test_numbers_are_those_of_json():
    found = package.estimate(**ONE)
    one, whole = found.strategy, found.to_dict()
    gpu = whole["memory"]["gpu"]
    assert (one.stage, one.micro_batch, one.grad_accum, one.gpus) == (3, 2, 1, 8)
    assert (one.held, one.peak) == (gpu["resident"], gpu["peak"]["bytes"])
    assert (one.needed, one.capacity, one.fits) == tuple(whole["fit"][name] for name in ("needed", "capacity", "fits"))
    assert one.headroom == whole["fit"]["headroom"]
    assert (one.step, one.tokens_per_s_per_gpu) == (whole["time"]["step"], whole["time"]["tokens_per_s_per_gpu"])
    assert one.tokens_per_s == 8 * one.tokens_per_s_per_gpu
    assert one.sent == sum(transfer["wire_bytes"] for transfer in whole["traffic"])  # one micro-step
    assert all(isinstance(number, int) for number in (one.held, one.peak, one.needed, one.sent, one.host_needed))


def test_one_strategy_of_several_is_not_guessed():
    found = package.estimate(**ESTIMATE)
    assert list(found.stages) == [0, 1, 2, 3]
    with pytest.raises(ZeroplanError, match="stages 0, 1, 2, 3 were estimated"):
        _ = found.strategy


def test_a_plan_s_config_is_the_command_s(zeroplan, tmp_path):
    found = package.recommend(**RECOMMEND)
    found.write(tmp_path / "ds_config.json")
    typed = zeroplan("recommend", *words(RECOMMEND), "-o", "-").out
    assert (tmp_path / "ds_config.json").read_text() == typed
    assert found.ds_config() == json.loads(typed)
    with pytest.raises(ZeroplanError, match="--force"):
        found.write(tmp_path / "ds_config.json")
    found.write(tmp_path / "ds_config.json", target="deepspeed", force=True)
    assert json.loads((tmp_path / "ds_config.json").read_text()) == found.ds_config("deepspeed")


def test_nothing_that_fits_is_a_result():
    found = package.recommend(params="2.7B", gpus=1, gpu_mem=24, stage=0, seq=256)
    assert (found.fits, found.plan) == (False, None)
    assert found.rejected[0].outcome.fits is False
    with pytest.raises(ZeroplanError, match="no plan to write: 2.7B on 1 GPU: nothing fits"):
        found.ds_config()


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        ({"params": 7_000_000_000}, "7B"), ({"params": 6_738_415_616}, "6738415616"), ({"params": 1.3e9}, "1.3B"),
        ({"gpu_mem": 80.0}, "80"), ({"gpu_mem": 79.2}, "79.2"), ({"zero_init": False}, "no"),
        ({"config": Path("a") / "b.json"}, "a/b.json"), ({"gpus": [8, "4x8"]}, "8,4x8"), ({"stage": None}, None),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_what_a_user_types(value, typed):
    """Python's values are read as the text is; what no option takes alone, as 79.2 or a list, in the same words."""
    (name,) = value
    assert read(value) == read({name: typed})


def read(values):
    try:
        return vars(Options(**values))
    except QuantityError as error:
        return str(error)


def test_options_have_types():
    read = Options(**{"params": "1.3b", "gpus": "2x8xA100", "stage": "zero3", "micro_batch": "4", "zero_init": "no",
                         "gpu_mem": "79.5GiB", "headroom": "10%", "host_mem": 512, "precision": "bfloat16"})  # fmt: skip
    assert (read.params.value, read.params.text) == (1_300_000_000, "1.3b")
    assert (read.gpus.value, read.gpu) == ((2, 8), "A100")
    assert (read.stage, read.micro_batch, read.zero_init, read.precision) == (3, 4, False, "bf16")
    assert read.gpu_mem.bytes == 795 * 2**30 // 10
    assert read.headroom.value.share == 0.1
    assert read.host_mem.value == 512 * 2**30


@pytest.mark.parametrize(
    "values",
    [
        {"params": "7Q"}, {"params": -1}, {"params": float("nan")}, {"gpu_mem": 79.2, "params": "7B"}, {},
        {"params": "7B", "model": "gpt2"}, {"params": "7B", "stage": 4}, {"model": "gpt-two"},
        {"params": "7B", "gpus": [8, 16]}, {"params": "7B", "accounting": "mine"},
    ],
    ids=str,
)  # fmt: skip
def test_an_error_is_the_command_s_line(zeroplan, values):
    with pytest.raises(ZeroplanError) as raised:
        package.estimate(**values)
    typed = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()}
    assert zeroplan("estimate", *words(typed)).err == f"zeroplan: {raised.value}\n"


def test_what_has_no_option_is_refused():
    with pytest.raises(UnknownNameError, match="unknown option 'gpu_memory'; nearest: gpu_mem"):
        package.estimate(gpu_memory=80)
    with pytest.raises(QuantityError, match="--config: found {'train_batch_size': 8}, expected text"):
        package.estimate(params="7B", config={"train_batch_size": 8})


def test_the_words_are_the_options():
    assert api.Words.__annotations__.keys() == Options.__annotations__.keys() == OPTIONS.keys()
    assert list(inspect.signature(package.estimate).parameters)[: len(Options.__annotations__)] == list(
        Options.__annotations__
    )


def test_the_package_lists_what_it_has_and_nothing_else():
    for name in package.__all__:
        assert hasattr(package, name)
        assert name in dir(package)
    with pytest.raises(AttributeError):
        _ = package.estimates


def test_importing_loads_nothing():
    """What `import zeroplan` adds to sys.modules: itself."""
    code = "import sys; before = set(sys.modules); import zeroplan; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["zeroplan"]


def test_types_are_declared():
    assert (Path(package.__file__).parent / "py.typed").exists()


def test_several_cards_and_the_fewest_gpus():
    found = package.recommend(params="1.3B", gpu_mem=[24, 80], gpus="auto", stage=2, micro_batch=1)
    assert list(found.cards) == ["24", "80"]
    assert found.plan == max(found.cards.values(), key=lambda plan: plan.tokens_per_s_per_gpu)
    assert found.plan.gpus == found.fewest.gpus


def test_the_largest_model(zeroplan):
    values = {"gpus": 2, "gpu_mem": 24, "stage": 2, "micro_batch": 1, "offload_optimizer": "none"}
    found = package.recommend(max_params=True, **values)
    size = found.sizes["as asked"]
    assert size.parameters == found.to_dict()["largest"]["as asked"]["parameters"]
    assert size.plan.fits
    assert str(found) + "\n" == zeroplan("recommend", "--max-params", *words(values)).out


@pytest.mark.parametrize(("call", "said"), [
    (lambda: package.recommend(**RECOMMEND, tokens="1B", deadline=timedelta(0)), "--deadline: found 0:00:00"),
    (lambda: package.recommend(**RECOMMEND, tokens="1B", deadline=timedelta(days=-1)), "--deadline: found -1 day"),
    (lambda: package.recommend(**RECOMMEND, tokens="1B", deadline=timedelta(days=10**6)), "up to 100 years"),
    (lambda: package.recommend(**RECOMMEND, tokens="1B", price={}), "--price: found"),
    (lambda: package.recommend(**RECOMMEND, tokens="1B", price={1: 2}), "--price: found"),
    (lambda: package.recommend(**RECOMMEND, why=[1]), "--why: found"),
    (lambda: package.recommend(**RECOMMEND, why=5), "--why: found"),
    (lambda: package.recommend(**RECOMMEND, max_params="perhaps"), "--max-params: found"),
    (lambda: package.estimate(**ONE, timeline=1), "--timeline: found"),
    (lambda: package.diff(5, 6), "diff: found 5"),
])  # fmt: skip
def test_what_no_option_means_is_one_line(call, said):
    with pytest.raises(ZeroplanError, match=re.escape(said)):
        call()


def test_a_small_share_is_read_however_python_writes_it():
    assert package.estimate(**ONE, headroom=1e-05).strategy.fits


def test_a_row_of_a_front_is_for_the_target_that_was_asked_for():
    rows = package.recommend(**RECOMMEND, objective="pareto", apart="50%", target="accelerate")
    assert rows.row(0).target == "accelerate"
