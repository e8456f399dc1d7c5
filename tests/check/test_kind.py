"""What a file is follows from its keys: each as people have it, smallest, under any name that it may have."""

from __future__ import annotations

import json

import pytest

OWN = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
AUTO = {**OWN, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
ARGUMENTS = {"per_device_train_batch_size": 1, "learning_rate": 0.001, "bf16": True, "output_dir": "out"}
HELD = "10.65 GiB"
"""That 1.3B on 8 GPUs need at stage 2 in bf16 (tests/cli/test_estimate.py has the arithmetic of its parts)."""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


def as_yaml(content, indent=""):
    return "".join(
        f"{indent}{name}:\n{as_yaml(value, indent + '  ')}" if isinstance(value, dict) else
        f"{indent}{name}: {json.dumps(value)}\n" for name, value in content.items()
    )  # fmt: skip


class TestConfig:
    @pytest.mark.parametrize("name", ["d.yaml", "d.yml", "d", "ds_config.txt"])
    def test_in_any_suffix(self, zeroplan, file, name):
        for text in (as_yaml(OWN), json.dumps(OWN)):
            ran = zeroplan("check", file(name, text), "--format", "json")
            assert ran.code == 0
            assert ran.json["findings"] == []

    def test_its_findings_stand_where_they_are(self, zeroplan, file):
        text = as_yaml({**OWN, "zero_optimization": {"stage": 2, "overlap_com": True}})
        (one,) = zeroplan("check", file("d.yaml", text), "--format", "json").json["findings"]
        line = text.split("\n").index("  overlap_com: true") + 1
        assert (one["rule"], one["line"], one["column"]) == ("ZP108", line, 3)

    def test_nothing_is_mended_in_yaml(self, zeroplan, file):
        text = as_yaml({**OWN, "zero_optimization": {"stage": 2, "overlap_com": True}})
        name = file("d.yaml", text)
        assert zeroplan("check", name, "--fix").code == 1
        with open(name, encoding="utf-8") as kept:
            assert kept.read() == text


class TestBlock:
    """A ds_config under `deepspeed` beside keys that are not the Trainer's."""

    def test_it_is_checked_as_deepspeed_reads_it_and_that_is_said(self, zeroplan, file):
        ran = zeroplan("check", file("sat.yaml", as_yaml({"args": {"mode": "sft"}, "deepspeed": OWN})))
        assert ran.code == 0
        assert "sat.yaml: a ds_config under deepspeed:, checked as DeepSpeed itself reads it\n" in ran.out

    def test_an_auto_in_it_is_the_trainer_s(self, zeroplan, file):
        """As in a file of its own: whoever writes it has the Trainer or Accelerate fill it, which is said."""
        name = file("sat.yaml", as_yaml({"args": {"mode": "sft"}, "deepspeed": AUTO}))
        ran = zeroplan("check", name)
        assert "ZP207" not in ran.out
        assert 'sat.yaml: a ds_config under deepspeed:, whose "auto" the Trainer fills in\n' in ran.out
        assert "ZP207" in zeroplan("check", name, "--for", "deepspeed").out

    def test_another_frameworks_own_section_is_none(self, zeroplan, file):
        for section in ({"enable_deepspeed": True, "zero_stage": "ZERO_2"}, {"value": None}):
            ran = zeroplan("check", file("other.yaml", as_yaml({"model": {"name": "x"}, "deepspeed": section})))
            assert ran.code == 2
            assert ran.err.startswith(f"zeroplan: other.yaml:3:1: found deepspeed: with '{next(iter(section))}'")
            assert ran.err.count("\n") == 1


class TestArguments:
    @pytest.mark.parametrize("name", ["arguments.json", "arguments.yaml"])
    def test_known_by_their_other_keys(self, zeroplan, file, name):
        """As JSON they had nine findings, each key one that DeepSpeed does not know."""
        file("ds.json", AUTO)
        stated = {**ARGUMENTS, "deepspeed": "ds.json"}
        ran = zeroplan("check", file(name, stated if name.endswith("json") else as_yaml(stated)), "--format", "json")
        assert (ran.code, ran.json["findings"]) == (0, [])

    def test_what_contradicts_them_is_found(self, zeroplan, file):
        file("ds.json", {**AUTO, "train_micro_batch_size_per_gpu": 4})
        ran = zeroplan("check", file("arguments.json", {**ARGUMENTS, "deepspeed": "ds.json"}), "--format", "json")
        assert ran.code == 1
        assert ran.json["findings"][0]["file"] == "ds.json"

    def test_no_defaults_of_theirs_stand_in_another_file(self, zeroplan, file):
        """`deepspeed: NAME` alone says nothing of batches: 4 contradicts no per_device_train_batch_size of 8."""
        file("ds.json", {**OWN, "train_micro_batch_size_per_gpu": 4})
        ran = zeroplan("check", file("run.yaml", "trainer: {x: 1}\ndeepspeed: ds.json\n"), "--format", "json")
        assert (ran.code, ran.json["findings"]) == (0, [])

    def test_an_empty_one_is_said_to_be_empty(self, zeroplan, file):
        ran = zeroplan("check", file("run.yaml", "output_dir: x\ndeepspeed:\nnum_train_epochs: 1\n"))
        assert ran.code == 2
        assert ran.err.startswith("zeroplan: run.yaml:2:1: found deepspeed: null")


def test_keys_of_something_else_are_named(zeroplan, file):
    ran = zeroplan("check", file("a.yaml", "a: 1\nb: 2\nc: 3\nd: 4\n"))
    assert ran.code == 2
    assert "found keys of something else ('a', 'b', 'c', ...)" in ran.err


def test_a_folder_has_all_of_them(zeroplan, file):
    for name, content in {
        "a.yaml": as_yaml(OWN), "b.yaml": as_yaml({"args": {"x": 1}, "deepspeed": OWN}), "c.json": OWN,
        "d.yaml": as_yaml({"model": 1, "deepspeed": {"enable_deepspeed": True}}), "e.yaml": "a: 1\n",
        "f.json": {**ARGUMENTS, "deepspeed": "c.json"},
    }.items():  # fmt: skip
        file(name, content)
    ran = zeroplan("check", ".")
    assert ran.code == 0
    assert ran.out.endswith("nothing found in 4 files\n")


@pytest.mark.parametrize(
    "content",
    [OWN, {"args": {"mode": "sft"}, "deepspeed": OWN}, {**ARGUMENTS, "deepspeed": OWN},
     {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "mixed_precision": "bf16",
      "deepspeed_config": {"zero_stage": 2, "gradient_accumulation_steps": 1}}],
)  # fmt: skip
def test_estimate_and_diff_read_what_check_reads(zeroplan, file, content):
    file("own.json", OWN)
    for name, text in (("a.yaml", as_yaml(content)), ("a.json", json.dumps(content))):
        ran = zeroplan("estimate", "1.3B", "--gpus", "8", "--micro-batch", "1", "--config", file(name, text), "-q")
        assert HELD in ran.out
        assert zeroplan("diff", name, "own.json").code in (0, 1)


GOOD = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'


def test_one_file_of_a_folder_stops_no_other(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_text(GOOD.replace("stage", "stag"), encoding="utf-8")
    (tmp_path / "ax.yaml").write_text("base_model: a/b\ndeepspeed: missing.json\noutput_dir: x\n", encoding="utf-8")
    ran = zeroplan("check", ".", "--format", "concise")
    assert (ran.code, "ZP108" in ran.out) == (1, True)
    assert 'zeroplan: ax.yaml: found deepspeed "missing.json", which is not there' in ran.err
    assert ran.err.endswith("not looked at\n")
    assert zeroplan("check", "ax.yaml").code == 2
    (tmp_path / "ds_config.json").write_text(GOOD, encoding="utf-8")
    assert zeroplan("check", ".").code == 1  # what it names is not there
    (tmp_path / "ax.yaml").write_text("deepspeed: zero3\nlearning_rate: 1.0e-4\nper_device_train_batch_size: 1\n", encoding="utf-8")
    assert zeroplan("check", ".").code == 0  # it is another's


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("package.json", '{"name": "x", "version": "1", "dependencies": {}}', "keys of something else ('name', 'version'"),
        ("neox.yml", "pipe_parallel_size: 1\nnum_layers: 12\n", "a file of GPT-NeoX, which makes its config of it ('pipe_parallel_size'"),
        ("slurm.out", "+ source /x\n[2021-07-01 01:25:12,365] [INFO] [engine.py:1680:_save] x\n", "a log"),
    ],
)  # fmt: skip
def test_another_s_file_is_named(zeroplan, tmp_path, monkeypatch, name, text, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    ran = zeroplan("check", name)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err


def test_a_misspelt_key_alone_is_a_config_s(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text('{"train_batchsize": 8}', encoding="utf-8")
    assert "train_batch_size" in zeroplan("check", "ds.json").out


@pytest.mark.parametrize("kind", ["FSDP", "MULTI_GPU", "'NO'", "NO"])
@pytest.mark.parametrize("name", ["acc.yaml", "run.sh"])
def test_an_accelerate_config_without_deepspeed_is_named(zeroplan, file, kind, name):
    """Run with accelerate 1.15: it goes on with each of these, a bare NO too, and no variable of DeepSpeed's is set."""
    text = f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nnum_processes: 2\nfsdp_config: {{fsdp_version: 2}}\n"
    file("acc.yaml", text)
    file("run.sh", "accelerate launch --config_file acc.yaml t.py\n")
    ran = zeroplan("check", name)
    stated = kind.strip("'")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f'zeroplan: acc.yaml:2:1: found distributed_type: "{stated}", an Accelerate config that starts no DeepSpeed')
    file("ds.json", OWN)
    ran = zeroplan("check", ".")
    assert (ran.code, ran.out) == (0, "nothing found in 1 file\n")


def test_a_script_goes_on_to_its_next_run(zeroplan, file):
    file("fsdp.yaml", "distributed_type: FSDP\nnum_processes: 2\n")
    file("ds.json", OWN)
    file("run.sh", "accelerate launch --config_file fsdp.yaml t.py\ndeepspeed t.py --deepspeed_config ds.json\n")
    ran = zeroplan("check", "run.sh")
    assert ran.code == 0
    assert 'fsdp.yaml:1:1: found distributed_type: "FSDP", an Accelerate config that starts no DeepSpeed' in ran.out


def test_an_option_turns_deepspeed_on(zeroplan, file):
    """Run: accelerate launch --use_deepspeed --zero_stage 2 over a file of FSDP or MULTI_GPU makes DeepSpeed's plugin."""
    file("acc.yaml", "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n")
    for stage, warned in ((2, True), (3, False)):
        options = f"--use_deepspeed --zero_stage {stage} --offload_param_device cpu --zero3_save_16bit_model true"
        file("run.sh", f"accelerate launch --config_file acc.yaml {options} t.py\n")
        assert ("ZP501" in zeroplan("check", "run.sh").out) == warned


def test_what_is_wrong_of_such_a_file_is_still_found(zeroplan, file):
    """accelerate 1.15 reads no deepspeed_config under another distributed_type."""
    name = file("acc.yaml", "distributed_type: FSDP\ndeepspeed_config: {zero_stage: 2}\n")
    assert "ZP812" in zeroplan("check", name).out


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.yaml", "data: {train_batch_size: 4}\nactor_rollout_ref: {model: {path: x}}\ntrainer: {n: 1}\n", "a file of verl"),
        ("a.yaml", "pipe-parallel-size: 1\nnum-layers: 2\n", "a file of GPT-NeoX"),
        ("a.yaml", "defaults:\n- deepspeed: zero2\noutput_dir: o\nnum_train_epochs: 3\n", "a file that Hydra puts together"),
        ("a.json", '{"model_type": "qwen-7b-chat", "template_type": "qwen", "dataset": ["a"], "output_dir": "o"}', "a training file of ms-swift"),
        ("a.log", "W0312 10:11:12.345000 139 torch/distributed/run.py:793] ***\n", "a log"),
        ("a.txt", "x\nTraceback (most recent call last):\n  File 'a'\n", "a log"),
        ("a.out", "{'loss': 1.2, 'grad_norm': 3.4}\n", "a log"),
    ],
)  # fmt: skip
def test_files_of_others_by_name(check_files, name, text, what):
    ran = check_files({name: text, "requirements.txt": "ms-swift==2.6.1\n"})  # whose arguments these are
    assert (ran.code, ran.out) == (2, "")
    assert f"found {what}" in ran.err


def test_blanks_at_the_end_of_a_key_are_seen(check_files):
    assert '"fp16 " is no key of' in check_files({"a.json": '{"train_batch_size": 8, "fp16 ": {"enabled": true}}'}).out


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("hostfile", "worker-1 slots=8\n# none\n\nworker-2 slots=4 max_slots=8\n", ""), ("hosts", "a slots=4\nb slots=4\n", ""),
        ("hostfile", "worker-1\nworker-2\n", "hostfile:1:1: error ZP846"),
        ("myhostfile", "worker-1 slots=8\nworker-2:8\n", "myhostfile:2:1: error ZP846"),
        ("hosts", "a slots=4\na slots=4\n", "hosts:2:1: error ZP846"), ("hostfile", "# none\n", "hostfile:1:1: error ZP846"),
    ],
)  # fmt: skip
def test_hostfiles(check_files, name, text, finding):
    """ValueError of fetch_hostfile (deepspeed 0.19.8): a bad entry, multiple entries, empty."""
    ran = check_files({name: text}, "--format", "concise")
    assert ran.code == bool(finding)
    assert finding in ran.out


def test_what_speaks_of_hosts(check_files):
    assert check_files({"README.md": "worker-1 slots=8\n"}).code == 2


@pytest.mark.parametrize(("text", "code"), [("distributed_type: DEEPSPEED: x\n", 1), ("deepspeed: ds.json\n  a: 1\n", 1), ("name: a: b\n", 2)])
def test_yaml_that_is_none(check_files, text, code):
    """yaml.safe_load of Accelerate and the trainers stops."""
    ran = check_files({"a.yaml": text}, "--format", "concise")
    assert ran.code == code
    assert "text that is not YAML" in ran.out + ran.err
    assert ("error ZP101" in ran.out) == (code == 1)


NEOX = '{"pipe-parallel-size": %d, "num-layers": 12, "train_micro_batch_size_per_gpu": 8, "precision": "bfloat16", \
        "zero_optimization": {"stage": %s}, "fp16": {"fp16": true, "type": "bfloat16"}}'


@pytest.mark.parametrize(("stages", "stage", "rule"), [(1, 1, ""), (0, 3, ""), (1, 3, "ZP718"), (1, 2, "ZP718"), (1, 4, "ZP401")])
@pytest.mark.parametrize("name", ["a.yml", "a.json"])
def test_files_of_gpt_neox(check_files, name, stages, stage, rule):
    """Its own NeoXArgs, run, hand on what DeepSpeedConfig of 0.16.9 takes; pipe_parallel_size 0 is no PipelineModule."""
    ran = check_files({name: NEOX % (stages, stage)}, "--format", "concise", "--fail-on", "error")
    assert ran.code == bool(rule)
    assert rule in ran.out


def test_sections_of_another_program(check_files):
    """Their optimizer and scheduler have a name, and DeepSpeed's a type."""
    text = "target: a.b\noptimizer:\n  name: torch.optim.AdamW\n  params: {lr: 1e-5}\nscheduler:\n  name: linear\n  params: {}\n"
    assert check_files({"a.yaml": text}).code == 2


def test_an_address_that_is_a_sentence(check_files):
    """ValueError of torchrun, run: The hostname of the rendezvous endpoint must be a dot-separated list of labels."""
    text = "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmain_process_ip: change to your main process ip\n" \
           "deepspeed_config: {zero_stage: 2, deepspeed_multinode_launcher: standard}\n"  # fmt: skip
    assert "warning ZP811" in check_files({"a.yaml": text}, "--format", "concise").out
    assert "ZP811" not in check_files({"a.yaml": text.replace("change to your main process ip", "10.0.0.1")}).out
