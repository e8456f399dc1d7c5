"""Recorded programs, replayed without torch, against torch itself: at sizes and with frozen weights that nobody recorded.

Of transformers' classes, small and on the meta device: mixtures of experts, Mamba, an encoder with a decoder.
"""

from __future__ import annotations

import gc
import gzip
import hashlib
import json
import weakref
from fractions import Fraction

import pytest

from zeroplan.architectures.execution import execution
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.architectures.recorded.assembled import assemble
from zeroplan.architectures.recorded.program import READS, Call, Extent, Operator
from zeroplan.architectures.recorded.replay import Sizes, replay
from zeroplan.architectures.trace import run_of, run_step
from zeroplan.autograd.engine import Engine
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.tensor import AccumulateGrad, Tensor
from zeroplan.catalog.recording import read, written
from zeroplan.errors import SpecError
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.model import TimelineRequest

torch = pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")
transformers = pytest.importorskip("transformers", reason="needs transformers (zeroplan[verify])")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402

from tests.conftest import REFERENCES  # noqa: E402
from tests.references.make_recorded_families import recorded as recorded_family  # noqa: E402
from zeroplan.verify.inputs import Inputs  # noqa: E402
from zeroplan.verify.recording import variants  # noqa: E402
from zeroplan.verify.recording.experiments import Experiments  # noqa: E402
from zeroplan.verify.recording.growth import NotOneProgramError, grown  # noqa: E402
from zeroplan.verify.recording.layers import identical_layers  # noqa: E402
from zeroplan.verify.recording.model import recording as recorded  # noqa: E402
from zeroplan.verify.recording.recorder import record  # noqa: E402
from zeroplan.verify.recording.registered import registered  # noqa: E402
from zeroplan.verify.recording.variants import Way  # noqa: E402
from zeroplan.verify.stand_ins import PASS, MetaStandIns  # noqa: E402

POINTS = ((2, 32), (3, 32), (2, 48), (3, 48), (4, 64), (2, 80), (5, 48))
ELSEWHERE = ((6, 40), (2, 120))
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300}
FAMILIES = {
    "glm4_moe": {**SMALL, "head_dim": 16, "intermediate_size": 96, "n_routed_experts": 4, "num_experts_per_tok": 2,
                 "moe_intermediate_size": 32, "pad_token_id": 0},
    "nemotron_h": {**SMALL, "intermediate_size": 96, "pad_token_id": 0},
    "t5": {"d_model": 64, "d_ff": 96, "num_layers": 2, "vocab_size": 300, "decoder_start_token_id": 0},
    "qwen3": {**SMALL, "head_dim": 16, "intermediate_size": 96},
    "olmo2": {**SMALL, "intermediate_size": 96, "pad_token_id": 0},
    "mixtral": {**SMALL, "intermediate_size": 96, "num_local_experts": 3},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
             "attn_pdrop": 0.0},
    "gpt_neox": {**SMALL, "intermediate_size": 96, "hidden_dropout": 0.0, "attention_dropout": 0.0},
    "falcon": {**SMALL, "hidden_dropout": 0.0, "attention_dropout": 0.0},
}  # fmt: skip
UNDESCRIBED = ("glm4_moe", "nemotron_h", "t5")


def built(family, **more):
    config = transformers.CONFIG_MAPPING[family](**{**FAMILIES[family], **more}, use_cache=False)
    auto = transformers.AutoModelForSeq2SeqLM if family == "t5" else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config, attn_implementation="eager", dtype=torch.bfloat16)
    return model.train()


def inputs(batch, seq):
    ids = torch.zeros((batch, seq), dtype=torch.long, device="meta")
    return Inputs({"input_ids": ids, "labels": ids})


class Bytes(TorchDispatchMode):
    """Bytes of the storages that live, and the most of them."""

    def __init__(self, known):
        super().__init__()
        self.stand_ins, self.now, self.most = MetaStandIns(), 0, 0
        self.sizes = {tensor.untyped_storage()._cdata: 0 for tensor in known}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = self.stand_ins.dispatched(func, args, kwargs or {})
        result = func(*args, **(kwargs or {})) if made is PASS else made
        for each in tree_flatten(result)[0]:
            if isinstance(each, torch.Tensor) and each.device.type == "meta":
                self.see(each.untyped_storage())
        return result

    def see(self, storage):
        if (key := storage._cdata) not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self.gone, key)

    def gone(self, key):
        self.now -= self.sizes.pop(key)


def torchs(model, batch, seq):
    """Bytes saved when forward has returned, and the peaks of forward and of backward."""

    def drop(parameter):
        parameter.grad = None

    given = inputs(batch, seq).tensors
    handles = [p.register_post_accumulate_grad_hook(drop) for p in model.parameters() if p.requires_grad]
    tracked = Bytes([*model.parameters(), *model.buffers(), given["input_ids"]])
    with tracked:
        output = model(**given)
        loss = output.loss
        del output
        gc.collect()
        saved, forward, tracked.most = tracked.now, tracked.most, tracked.now
        loss.backward()
    for handle in handles:
        handle.remove()
    return saved, forward, tracked.most


def replayed(program, model, batch, seq):
    memory = Memory(2)
    sizes, leaves = Sizes(memory, batch, seq), {}
    every = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())

    def below(prefix):
        def named(ref):
            tensor = every[ref[1:] if ref.startswith("/") else prefix + ref]
            if id(tensor) not in leaves:
                shape, width = tuple(tensor.shape), tensor.element_size()
                node = AccumulateGrad(id(tensor), shape, width) if tensor.requires_grad else None
                leaves[id(tensor)] = Tensor(None, shape, tuple(tensor.stride()), width, memory, node)
            return leaves[id(tensor)]

        def call(step, given):
            path = f"{prefix}{step.module}." if step.module else prefix
            return replay(step.program, given, sizes, *below(path))

        return named, call

    (loss,) = replay(program, [], sizes, *below(""))
    leaves.clear()
    saved, forward = memory.allocated, memory.max_allocated
    memory.reset_peak()
    Engine().run(loss)
    return saved, forward, memory.max_allocated


@pytest.mark.parametrize("family", UNDESCRIBED)
def test_bytes_are_torchs_at_other_sizes_and_with_frozen_weights(family):
    """Recorded with all weights training; then every other tensor, or all but norms, is frozen."""
    model = built(family)
    program = grown([record(model, inputs(*point), Experiments()) for point in POINTS], POINTS)
    names = [name for name, _parameter in model.named_parameters()]
    frozen = {"nothing": (), "every other": names[1::2], "all but norms": [name for name in names if "norm" not in name]}
    for what, still in frozen.items():
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in still)
        for point in ELSEWHERE:
            assert replayed(program, model, *point) == torchs(model, *point), (what, point)


def test_layers_that_hand_a_bias_on_are_recorded_once():
    """T5's first makes it, and each returns what it is given beside its own."""
    model, point = built("t5", num_layers=4), (3, 48)
    experiments = Experiments()
    alike = identical_layers(model, inputs(2, 32), experiments)
    assert alike.keys() == {"encoder.block.2", "decoder.block.2", "decoder.block.3"}
    folded, plain = (record(model, inputs(*point), experiments, known) for known in (alike, {}))
    assert replayed(folded, model, *point) == replayed(plain, model, *point) == torchs(model, *point)


WAYS = {"none": PLAIN, "full": Recomputing(1), "every 2": Recomputing(2), "reentrant": Recomputing(1, reentrant=True)}


@pytest.fixture(scope="module")
def both():
    """A family's tree as it was recorded, and as it is described."""
    known = {}

    def trees(family):
        if family not in known:
            model = built(family)
            recorded = assemble(registered(model), record(model, inputs(2, 32), Experiments()))
            model_type, config = read_config(json.loads(model.config.to_json_string(use_diff=False)), "case")
            known[family] = recorded, model_of(model_type, config, name="case", source="case").profile.root
        return known[family]

    return trees


@pytest.mark.parametrize("family", ["qwen3", "olmo2", "mixtral", "gpt2", "gpt_neox", "falcon"])
def test_hooks_and_gradients_come_in_the_order_of_the_described_family(both, family):
    recorded, described = (execution(tree, eager=True) for tree in both(family))
    for name in ("modules", "layers", "gradients", "gradients_stage_3"):
        assert getattr(recorded, name) == getattr(described, name), name
    for name in ("forward", "backward", "recomputing"):
        assert list(getattr(recorded, name)) == list(getattr(described, name)), name


@pytest.mark.parametrize("zero_linear", [False, True])
@pytest.mark.parametrize("recomputing", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("family", ["qwen3", "olmo2"])
def test_layers_run_again_as_those_of_the_described_family(both, family, recomputing, zero_linear):
    """Recorded once, without checkpointing and with torch's own linear function."""
    request = TimelineRequest(
        batch=2, seq=32, width=2, half=False, attention="eager", kernel="cpu", recomputing=recomputing,
        zero_linear=zero_linear,
    )  # fmt: skip
    recorded, described = (run_step(tree, run_of(request, tree)) for tree in both(family))
    assert recorded == described


@pytest.fixture(scope="module")
def recording():
    return recorded({"model_type": "glm4_moe", **FAMILIES["glm4_moe"]}, name="glm", place="case", ways=[Way("sdpa", "bf16")])


def test_a_file_is_read_as_it_was_written(recording):
    content = written(recording).encode()
    assert read(content, "model.trace.json") == recording
    assert read(gzip.compress(content), "model.trace.json") == recording
    assert written(read(content, "model.trace.json")).encode() == content


@pytest.mark.parametrize("layout", [{"separators": (",", ":")}, {}, {"indent": 1}], ids=["one line", "spaces", "indented"])
def test_a_file_that_is_laid_out_anew_is_read(recording, layout):
    """By another program: the checksum is that of the content. Files of before had all on one line."""
    content = json.dumps(json.loads(written(recording)), **layout).encode()
    assert read(content, "model.trace.json") == recording
    assert read(altered(content, lambda whole: None), "model.trace.json") == recording


def altered(content, change):
    """With a checksum that is right."""
    whole = json.loads(content)
    version, _checksum = whole.pop("zeroplan_trace"), whole.pop("checksum")
    change(whole)
    text = json.dumps(whole, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"zeroplan_trace": version, "checksum": checksum, **whole}).encode()


def altered_line(content, change):
    """The first row's line, with a checksum that is right."""
    head, first, rest = content.split(b"\n", 2)
    body = b"\n".join((head[head.index(b'"recording"') :], change(first), rest)).strip()
    return b'{"zeroplan_trace":2,"checksum":"%b",%b\n' % (hashlib.sha256(b"{" + body).hexdigest().encode(), body)


def test_other_files_are_refused_in_one_line(recording):
    content = written(recording).encode()
    later, deep = {"row": 10**6}, {"zeroplan_trace": 1, "rows": "[" * 10**5}
    files = {
        "cut off": content[:-40], "nothing": b"", "no JSON": b"{", "other JSON": b"[1]", "another": b"{}",
        "schema": gzip.compress(b'{"zeroplan_trace": 2}'), "no checksum": b'{"zeroplan_trace": 1, "rows": []}',
        "a number": content.replace(b"torch", b"Torch"), "cut off and gzipped": gzip.compress(content)[:-40],
        "deep": json.dumps(deep).replace('"[', "[").encode(), "a bomb": gzip.compress(b"0" * 65_000_000),
        "a row to come": altered(content, lambda whole: whole["rows"].insert(0, [10, [later]])),
        "no such type": altered(content, lambda whole: whole["rows"][0].__setitem__(0, 99)),
        "a missing field": altered(content, lambda whole: whole["rows"][0].pop()),
        "text for a number": altered(content, lambda whole: whole["rows"][0].__setitem__(-1, "7")),
        "another program": altered(content, lambda whole: whole.update(recording={"row": 0})),
        "no rows": altered(content, lambda whole: whole.pop("rows")),
        "a line that is no JSON": altered_line(content, lambda line: line[1:]),
        "two rows on a line": altered_line(content, lambda line: line + line),
        "a line of nothing": altered_line(content, lambda line: b""),
        "a line of depth": altered_line(content, lambda line: b"[" * 10**5),
        "a line with text for a number": altered_line(content, lambda line: line.replace(b",7", b',"7"', 1) if b",7" in line else b'[0,"7"],'),
        "a line that is altered": content.replace(b"\n[", b"\n[1", 1),
        "fewer lines": b"\n".join((*content.split(b"\n")[:-3], b"]}")),
    }  # fmt: skip
    for name, file in files.items():
        with pytest.raises(SpecError) as error:
            tuple(read(file, "model.trace.json").programs)
        assert "\n" not in str(error.value), name
        assert str(error.value).startswith("model.trace.json: found "), name


def test_sizes_grow_as_polynomials():
    """3·b·s² + 5·s + 7, and two points more than decide it."""
    recorded = [(Extent(3 * b * s * s + 5 * s + 7), "as ever") for b, s in POINTS]
    assert grown(recorded, POINTS) == (Extent(7, s=5, bss=3), "as ever")


@pytest.mark.parametrize(
    "value", [lambda b, s: b**3, lambda b, s: -(-s // 5), lambda b, s: int(Fraction(s, 3)) + b], ids=["cube", "chunks", "thirds"]
)
def test_what_is_no_polynomial_is_refused(value):
    with pytest.raises(NotOneProgramError):
        grown([Extent(value(*point)) for point in POINTS], POINTS)


def test_another_program_elsewhere_is_refused():
    with pytest.raises(NotOneProgramError, match="not as many elsewhere"):
        grown([(Extent(1),) * (1 + (s > 64)) for _b, s in POINTS], POINTS)


@pytest.mark.parametrize(
    ("family", "expected"),
    [("mamba2", {"lm_head.weight", "norm.weight"}), ("t5", {"wo.weight"}), ("zamba2", set()), ("qwen3_vl", {"proj.weight"})],
)
def test_parameters_that_a_module_takes_of_one_below(monkeypatch, family, expected):
    """For their dtype (modeling_mamba2.py: lm_head.weight.dtype; modeling_t5.py: wo; Qwen3-VL's patches: proj), beside
    those that operators read; and blocks of Zamba 2, each of which has a layer within it that gives what it gives.
    """
    monkeypatch.setattr(variants, "BATCHES", (1, 2))
    taken, made = set(), 0

    def look(program):
        nonlocal made
        for step in program.steps:
            if isinstance(step, Call):
                made += step.module.startswith("layers.") and bool(step.outputs)
                look(step.program)
            elif isinstance(step, Operator) and step.name == READS:
                taken.add(step.inputs[0])

    known = recorded_family(family)
    look(known.programs[0])
    assert taken == expected
    assert family != "zamba2" or made == 4
    stored = read((REFERENCES / "families" / f"{family}.trace.json.gz").read_bytes(), family)
    assert known.programs == stored.programs
