"""One run with very many sequences, and one of every second layer, against a run of each batch and every K itself."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.architectures import draws
from zeroplan.architectures import identical_layers
from zeroplan.architectures.batch_scaled import MANY, batch_scaled
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.architectures.registry import FAMILIES, LIGER_FAMILIES
from zeroplan.architectures.trace import run_of, run_trace
from zeroplan.errors import ZeroplanError
from zeroplan.specs.checkpointing import recomputing
from zeroplan.specs.execution import PassTimeline
from zeroplan.specs.model import Model, TimelineRequest

PER_FAMILY = 6
KINDS = (
    "none", "selective", "full", "full-reentrant", "every-2", "every-2-reentrant", "every-3", "every-4", "every-5",
    "selective-products",
)  # fmt: skip


def drawn(family: str, rng: random.Random) -> Model | None:
    """With more layers than a draw has, so that several stand for others."""
    config = draws.draw(family, rng.randrange(10**6))
    for field in ("num_hidden_layers", "n_layer"):
        if field in config:
            config[field] = rng.randint(1, 11)
    try:
        found = model_of(*read_config(config, "drawn"), name="drawn", source="drawn")
        run_trace(found.profile.root, ForwardRun(2, 2, 8, attention="eager", kernel="math"))  # type: ignore[attr-defined]
    except (ZeroplanError, AssertionError):  # refused; or loads, and runs nowhere
        return None
    except NotImplementedError:
        pass
    return found


def asked(rng: random.Random) -> TimelineRequest:
    width = rng.choice([2, 2, 4])
    attention = rng.choice(["eager", "sdpa", "sdpa"])
    kernels = ["flash", "efficient", "cudnn", "math", "cpu"]
    return TimelineRequest(
        batch=rng.choice([2, 2, 3, 4, 7, 16]), seq=rng.choice([3, 8, 16, 40]), width=width,
        half=width == 2 and rng.random() < 0.3, attention=attention, kernel=rng.choice(kernels),
        recomputing=recomputing(rng.choice(KINDS)), zero_linear=rng.random() < 0.4,
        autocast_bytes=2 if width == 4 and rng.random() < 0.4 else 0,
    )  # fmt: skip


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_as_a_run_of_that_batch(family: str):
    rng = random.Random(f"sized {family}")
    compared = 0
    while compared < PER_FAMILY:
        model, wanted = drawn(family, rng), asked(rng)
        if model is None:
            continue
        root = model.profile.root  # type: ignore[attr-defined]
        assert wanted.is_even
        try:
            direct = run_trace(root, run_of(wanted, root))
        except NotImplementedError:
            continue
        shared = batch_scaled(run_trace(root, run_of(wanted._replace(batch=MANY), root))).at(wanted.batch)
        assert shared._replace(log=direct.log) == direct, wanted
        assert ended(shared.log()) == ended(direct.log()), wanted
        compared += 1


def ended(log: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Until the last stretch ends: what is freed afterwards is freed when Python comes to it."""
    last = max(at for at, entry in enumerate(log) if entry[0] == 3)
    return log[: last + 1]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_layers_checkpointed_elsewhere(family: str, monkeypatch: pytest.MonkeyPatch):
    rng = random.Random(f"shared {family}")
    compared = 0
    while compared < PER_FAMILY:
        state, model = rng.getstate(), drawn(family, rng)
        if model is None:
            continue
        rng.setstate(state)
        again = drawn(family, rng)
        assert again is not None
        again_every = rng.choice(("every-3", "every-4", "every-5", "every-4-reentrant"))
        wanted = asked(rng)._replace(recomputing=recomputing(again_every))
        shared = shown(model, wanted)
        with monkeypatch.context() as patched:
            patched.setattr(identical_layers, "SHARED", ())
            direct = shown(again, wanted)
        assert shared == direct, wanted
        compared += 1


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_stage_3s_own_linear_function(family: str):
    """It keeps as many bytes from forward to backward as torch's, unless under autocast, and runs no less again."""
    rng = random.Random(f"linear {family}")
    compared = 0
    while compared < PER_FAMILY:
        model = drawn(family, rng)
        wanted = asked(rng)._replace(zero_linear=False, attention=rng.choice(["eager", "sdpa", "flash_attention_2"]))
        if model is None:
            continue
        kernels = ["transformers", "transformers", "liger", "liger-loss"] if family in LIGER_FAMILIES else ["transformers"]
        wanted = wanted._replace(kernels=rng.choice(kernels))
        own = wanted._replace(zero_linear=True)
        torchs, of_stage_3 = (model.profile.alone(each) for each in (wanted, own))
        if torchs is None or of_stage_3 is None:
            compared += 1  # not written out
            continue
        assert wanted.autocast_bytes or torchs[0] == of_stage_3[0], wanted
        less, more = (model.profile.recomputed_share(each) for each in (wanted, own))
        if less is not None and more is not None:
            assert all(one <= other for one, other in zip(less, more, strict=True)), wanted
        compared += 1


def shown(model: Model, wanted: TimelineRequest) -> list[object]:
    """All that a job is told, and what is alive at a few moments, by kind."""
    profile = model.profile
    laid = profile.timeline(wanted)
    if laid is None:
        return []
    found: list[object] = [laid.saved, *map(written, laid[:2]), profile.alone(wanted), profile.recomputed_share(wanted)]
    for backward in (False, True):
        alive = partial(profile.allocated, wanted, backward=backward)
        found.append(profile.peak(wanted, backward=backward))
        levels = (laid.backward if backward else laid.forward).most
        at = levels.index(max(levels))
        found += [alive(at=at, size=levels[at]), profile.places(wanted, backward=backward)]
    return [*found, profile.flops(wanted), profile.saved(wanted)]


def written(one: PassTimeline) -> list[object]:
    """Over all layers; the fullest stretch is found without that."""
    assert one.fullest == (max(one.most), one.most.index(max(one.most)))
    return [one.most, one.now, one.hooks, one.ready, one.start]
