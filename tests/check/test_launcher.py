"""Launch scripts: words as bash itself hands them on, and what a config is checked with that a run is given."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from zeroplan.check.launcher import launches
from zeroplan.check.shell import commands

BASH = shutil.which("bash")
SAID = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]))
"""
SCRIPTS = {
    "continued lines": "torchrun --nproc_per_node 8 \\\n  train.py --deepspeed ds.json\n",
    "quotes": "deepspeed t.py 'a b' \"c d\" e' 'f g\\ h '$X' \"\\\"q\\\"\"\n",
    "variables": 'A=1\nexport B="two words"\ndeepspeed t.py $A "$B" $B ${A}x ${C:-usual} "${A}/${B}" \'$A\'\n',
    "lists": "ARGS=(\n  --bf16 True  # why\n  --name 'x y'\n)\ntorchrun t.py ${ARGS[@]} end\n",
    "a list in quotes": 'ARGS=(--name "x y")\ntorchrun t.py "${ARGS[@]}"\n',
    "words in a variable": 'DIST="--nnodes 2 --nproc_per_node 8"\ntorchrun $DIST t.py\n',
    "several commands": "A=2; deepspeed a.py && deepspeed b.py $A || true\nif true; then deepspeed c.py; fi\n",
    "comments": "# deepspeed no.py 'open quote\ndeepspeed t.py #no\ndeepspeed u.py a#b\n",
    "a text of its own": "cat > /dev/null <<EOT\ndeepspeed no.py 'x\nEOT\ndeepspeed t.py\n",
    "a variable of variables": 'OUT=runs/a\nLOG="$OUT/log"\ndeepspeed t.py --log $LOG\n',
    "whole numbers": 'G=${G:-8}\nB=128\nA=$((B / 4 / G))\ndeepspeed t.py $A $((2+3*4-7%4)) x$((${G}*$B)) "$((7/2))"\n',
    "what commands write": (
        "N=$(expr 4 \\* 2)\nG=0,1,2\nM=$(echo $G | tr ',' '\\n' | wc -l)\nK=$(echo \"$G\" | awk -F',' '{print NF}')\n"
        'deepspeed t.py $N $M $K $(basename a/b.json .json) "$(dirname a/b/c)" x`dirname a`y "$(echo "$(echo p q)" r)"\n'
    ),
    "how many a list has": "G=(0 1 2)\ndeepspeed t.py ${#G[@]}\n",
    "a usual value that is set": ": ${X:=y}\ndeepspeed t.py $X ${Z=z} $Z\n",
    "a command in a variable": 'C="deepspeed t.py --x"\n$C 2\n',
    "a value with an equals sign": "deepspeed t.py --deepspeed=ds.json A=b\n",
}


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(name, tmp_path):
    """The launchers are scripts that print what they are given."""
    for launcher in ("deepspeed", "torchrun"):
        (tmp_path / launcher).write_text(SAID)
        (tmp_path / launcher).chmod(0o755)
    (tmp_path / "run.sh").write_text(SCRIPTS[name])
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run([BASH, str(tmp_path / "run.sh")], env=around, capture_output=True, text=True, check=True)
    given = [json.loads(line) for line in ran.stdout.splitlines()]
    ours = ([word.text for word in one.words] for one in commands(SCRIPTS[name]))
    assert [words for words in ours if words[0] in ("deepspeed", "torchrun")] == given


@pytest.mark.parametrize("word", ["$1", "$(date)", "`date`", "${NOWHERE}", "x$HOME/y", '"$(cat a)"', "${A:?no}",
                                  "$((1/0))", "$((A+1))", "$((1<<2))", "$((1 2))", "$(($(date)))"])
def test_what_a_script_does_not_set_is_not_known(word):
    (one,) = commands(f"deepspeed t.py {word}")
    assert one.words[-1].text is None


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("deepspeed --num_gpus 4 t.py --deepspeed ds.json", 4),
        ("deepspeed --num_nodes=2 --num_gpus=4 t.py --deepspeed ds.json", 8),
        ("torchrun --nproc-per-node=8 --nnodes=4 t.py --deepspeed ds.json", 32),
        ("python -m torch.distributed.run --nproc_per_node 2 t.py --deepspeed ds.json", 2),
        ("accelerate launch --num_processes 16 --config_file a.yaml t.py", 16),
        ("torchrun --nproc_per_node gpu t.py --deepspeed ds.json", None),
        ("deepspeed t.py --deepspeed ds.json", None),
        ('srun bash -c "torchrun --nproc_per_node 4 t.py --deepspeed ds.json"', 4),
        ("N=2\nbash -lc 'cd x && torchrun --nproc_per_node 4 t.py --deepspeed ds.json'", 4),
        ("accelerate-launch --num_processes 4 --config_file a.yaml t.py", 4),
        ("python3.11 -m torch.distributed.run --nproc_per_node 2 t.py --deepspeed ds.json", 2),
        # Slurm's sbatch: one task a node where nothing is said of tasks, and options behind the first command are not read.
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun python t.py --deepspeed ds.json", 4),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=8\nsrun python t.py --deepspeed ds.json", 32),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:a100:4\n#SBATCH -n 8\nsrun python t.py --deepspeed ds.json", 8),
        ("#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\nsrun -n 4 python t.py --deepspeed ds.json", 4),
        ("#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\nsrun -N 1 python t.py --deepspeed ds.json", None),
        ("#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\npython t.py --deepspeed ds.json", None),
        ("#SBATCH --nodes=1\nexport A=1\n#SBATCH --ntasks=2\nsrun python t.py --deepspeed ds.json", 1),
        ("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\ndeepspeed t.py --deepspeed ds.json", 4),
        ("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsrun deepspeed --num_gpus $N t.py --deepspeed ds.json", None),
        ("#SBATCH --gres=gpu:4,nvme:1\ndeepspeed t.py --deepspeed ds.json", 4),
        ("#SBATCH --gres=mps:100\ndeepspeed t.py --deepspeed ds.json", None),
        ("#SBATCH --nodes=3\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 t.py --deepspeed ds.json", 24),
        ("deepspeed --num_gpus ² t.py --deepspeed ds.json", None),
        ("G=8\nN=2\ntorchrun --nnodes $N --nproc_per_node ${G} t.py --deepspeed ds.json", 16),
        # Run in bash: which of the values it is follows from what the script is given.
        ('N=4; [ -n "$1" ] && N=8\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json', None),
        ('if [ "$1" = a ]; then N=4\nelse N=8\nfi\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json', None),
        ("case $1 in\na) N=4;;\n*) N=8;;\nesac\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json", None),
        ('if [ -z "$N" ]; then N=8; fi\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json', 8),
        ("N=8\n((N/=2))\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json", None),
        ("N=8\nlet N=N/2\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json", None),
        ("N=8\nread N\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json", None),
        ("N=8\nfor N in 4 8; do\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json\ndone", None),
        ("N=8\nfor N in 4; do\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json\ndone", 4),
        ("N=8\nfor N in {1..4}; do\ntorchrun --nproc_per_node $N t.py --deepspeed ds.json\ndone", None),
        ('A="--nproc_per_node 8"; A+=" --nproc_per_node 4"\ntorchrun $A t.py --deepspeed ds.json', 4),
        ("A=(--nproc_per_node)\nA+=(4)\ntorchrun ${A[@]} t.py --deepspeed ds.json", 4),
    ],
)
def test_ranks(text, gpus):
    (one,) = launches("run.sh", text)
    assert one.gpus == gpus


HOSTS = "a slots=4\nb slots=4\nc slots=2\n"


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("--include localhost:0,1", 2),
        ("--include=localhost:0,1,3", 3),
        ("-i localhost:2,2,3", 2),
        ("--include localhost:0@localhost:1", 2),
        ("--include localhost", None),
        ("--exclude localhost:0", None),
        ("--include localhost:0 --exclude localhost:1", None),
        ("--include localhost:0,1 --num_gpus 2", None),
        ("--include localhost:$1", None),
        ("--hostfile hosts", 10),
        ("--hostfile hosts --include a:0,1@b:0", 3),
        ("--hostfile hosts --include a@c", 6),
        ("--hostfile hosts --exclude a:0@c", 7),
        ("-H hosts -e b", 6),
        ("--hostfile hosts --include c:5", None),
        ("--hostfile hosts --include d:0", None),
        ("--hostfile hosts --num_gpus 2", 6),
        ("--hostfile hosts --num_nodes 2", 8),
        ("--hostfile hosts --num_nodes 2 --num_gpus 3", 6),
        ("--hostfile elsewhere --num_nodes 2 --num_gpus 3", 6),
        ("--hostfile elsewhere --num_gpus 3", None),
        ("--hostfile elsewhere --include a:0,1@b:0", 3),
    ],
)
def test_ranks_of_a_hostfile_and_a_filter(options, gpus):
    """Run: launcher/runner.py of deepspeed 0.19.8, what its main() hands on as --world_info; None where it stops, and
    where 8 GPUs of the machine or a hostfile that is not there would decide.
    """
    (one,) = launches("run.sh", f"deepspeed {options} t.py --deepspeed ds.json", {"hosts": ("hosts", HOSTS)}.get)
    assert one.gpus == gpus


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,5 deepspeed {}", 3),
        ("export CUDA_VISIBLE_DEVICES=0,1\ndeepspeed {}", 2),
        ("CUDA_VISIBLE_DEVICES=0,1\nexport CUDA_VISIBLE_DEVICES\ndeepspeed {}", 2),
        ("CUDA_VISIBLE_DEVICES=0,1\ndeepspeed {}", None),
        ("CUDA_VISIBLE_DEVICES=0,1,5 deepspeed --num_gpus 2 {}", 2),
        ("CUDA_VISIBLE_DEVICES=0,1,5 deepspeed --include localhost:0 {}", 1),
        ("CUDA_VISIBLE_DEVICES=0,1,5 deepspeed --hostfile hosts {}", 10),
        ("CUDA_VISIBLE_DEVICES=$1 deepspeed {}", None),
        ("CUDA_VISIBLE_DEVICES=0 python a.py\ndeepspeed {}", None),
    ],
)
def test_cards_that_the_environment_shows(script, gpus):
    """Run: launcher/runner.py of deepspeed 0.19.8 makes an --include of them where none of its options is there."""
    text = script.format("t.py --deepspeed ds.json")
    assert launches("run.sh", text, {"hosts": ("hosts", HOSTS)}.get)[-1].gpus == gpus


AUTO = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}
OWN = {**AUTO, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
TRAINER = "torchrun --nproc_per_node 8 t.py --output_dir out --bf16 True --per_device_train_batch_size 2"


@pytest.fixture
def check(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(script, config=OWN, name="run.sh"):
        (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
        (tmp_path / name).write_text(script, encoding="utf-8")
        return zeroplan("check", name, "--format", "json")

    return run


def rules(ran):
    return {one["rule"] for one in ran.json["findings"]}


def test_the_trainer_fills_what_its_arguments_say(check):
    assert rules(check(f"{TRAINER} --deepspeed ds.json\n", AUTO)) == set()


def test_deepspeeds_own_option_is_read_by_deepspeed(check):
    """deepspeed.add_config_arguments: nobody fills an auto."""
    assert "ZP207" in rules(check("deepspeed t.py --deepspeed --deepspeed_config ds.json\n", AUTO))


def test_what_contradicts_an_argument_names_its_line(check):
    """The Trainer compares train_micro_batch_size_per_gpu with per_device_train_batch_size (fill_match)."""
    ran = check(f"#!/bin/bash\n{TRAINER} \\\n  --deepspeed ds.json\n")
    (one,) = [one for one in ran.json["findings"] if one["path"] == "train_micro_batch_size_per_gpu"]
    assert one["file"] == "ds.json"
    assert "run.sh:2" in one["message"]


def test_ranks_decide_the_batch(check):
    """16 is 2 on each of 8, and no number of whole micro-batches of 2 on each of 3."""
    config = {**OWN, "train_micro_batch_size_per_gpu": 2, "train_batch_size": 16}
    filters = {"--num_gpus 8": False, "--num_gpus 3": True, "--include localhost:0,1,3": True,
               "--include localhost:0,1,2,3": False}  # fmt: skip
    for options, found in filters.items():
        ran = check(f"deepspeed {options} t.py --deepspeed --deepspeed_config ds.json\n", config)
        assert any(rule.startswith("ZP20") for rule in rules(ran)) == found


def test_an_argument_that_is_not_known_is_not_compared(check, zeroplan):
    script = f"{TRAINER} --deepspeed ds.json\n".replace("size 2", "size $1")
    assert rules(check(script)) == set()
    assert "run.sh:1: --per_device_train_batch_size, whose value no line sets: not compared" in zeroplan("check", "run.sh").out


def test_what_is_looked_at_is_said(check, zeroplan):
    check(f"{TRAINER} --deepspeed ds.json\n", AUTO)
    assert "run.sh:1: ds.json, given to torchrun, on 8 GPUs\n" in zeroplan("check", "run.sh").out


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("deepspeed t.py --deepspeed no.json\n", 'run.sh:1: found "no.json", which is not there'),
        ("x=1\ndeepspeed t.py --deepspeed $1\n", "run.sh:2: found a config whose name follows from what no line sets"),
        ("#!/bin/bash\necho hi\n", "run.sh: found a script that gives no DeepSpeed config to a training run"),
    ],
)
def test_a_script_without_one_is_refused(zeroplan, tmp_path, monkeypatch, script, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    ran = zeroplan("check", "run.sh")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err


def test_accelerates_file_is_checked_with_the_config_that_it_names(check, tmp_path):
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    broken = {**AUTO, "zero_optimization": {"stage": 2, "overlap_com": True}}
    assert "ZP108" in rules(check("accelerate launch --config_file a.yaml t.py\n", broken))


def test_a_folder_has_scripts_whose_config_is_there(check, zeroplan, tmp_path):
    check(f"{TRAINER} --deepspeed ds.json\n", AUTO)
    (tmp_path / "other.sh").write_text("deepspeed t.py --deepspeed nowhere.json\n", encoding="utf-8")
    ran = zeroplan("check", ".")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "nothing found in 2 files")


def test_estimate_asks_for_the_config_itself(check, zeroplan):
    check(f"{TRAINER} --deepspeed ds.json\n")
    ran = zeroplan("estimate", "1.3B", "--gpus", "8", "--config", "run.sh")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "run.sh: found a shell script" in ran.err
    assert "write --config ds.json" in ran.err


CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "overlap_com": true}}'
LLAMA_FACTORY = ("model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\ndeepspeed: ds.json\n"
                 "per_device_train_batch_size: 1\noutput_dir: x\nbf16: true\n")  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --deepspeed ds.json --bf16 true",
        "trl sft --model_name_or_path x --deepspeed ds.json --bf16",
        "FORCE_TORCHRUN=1 llamafactory-cli train lf.yaml",
        "trl sft --config lf.yaml",
        "accelerate launch --num_processes 8 -m axolotl.cli.train lf.yaml",
    ],
)
def test_other_tools_launchers(zeroplan, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    for name, text in (("ds.json", CONFIG), ("lf.yaml", LLAMA_FACTORY), ("run.sh", f"#!/bin/bash\n{line}\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    ran = zeroplan("check", "run.sh", "--format", "concise")
    column = CONFIG.index('"overlap_com"') + 1
    assert f"ds.json:1:{column}: error ZP108: overlap_com is no key" in ran.out
    assert "ZP309" not in ran.out


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("run.sh", "swift sft --model x --deepspeed zero4\n", 'run.sh:1: found "zero4", which is not there'),
        ("lf.yaml", LLAMA_FACTORY.replace("ds.json", "zero3"), 'found deepspeed "zero3", which is not there'),
        ("run.log", "[2026-11-27 07:00:00,000] [INFO] [config.py:735:__init__] Config\n", "found a log"),
    ],
)  # fmt: skip
def test_what_is_named_as_what_it_is(zeroplan, tmp_path, monkeypatch, name, text, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    ran = zeroplan("check", name)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err


def test_deepspeeds_own_option_is_not_the_trainer_s(zeroplan, tmp_path, monkeypatch):
    """--deepspeed_config is deepspeed.add_config_arguments'; the Trainer has none, whatever stands beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text('{"train_batch_size": 1520, "train_micro_batch_size_per_gpu": 190, "fp16": {"enabled": true}, '
                                      '"zero_optimization": {"stage": 1}}', encoding="utf-8")  # fmt: skip
    (tmp_path / "run.sh").write_text("deepspeed train.py --deepspeed --deepspeed_config ds.json --save_steps 5 --adam-beta1 0.9\n", encoding="utf-8")
    assert "ZP205" not in zeroplan("check", "run.sh").out


FIELDS = {"zero_stage": 2, "gradient_accumulation_steps": 4, "gradient_clipping": 1.0}
ARGUMENTS = "--per_device_train_batch_size 4 --output_dir o"


def accelerated(zeroplan, tmp_path, monkeypatch, fields, line, precision="no"):
    """Rules that hold of a script, beside an Accelerate file of these fields."""
    monkeypatch.chdir(tmp_path)
    file = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "mixed_precision": precision,
            "num_machines": 1, "num_processes": 2, "deepspeed_config": fields}  # fmt: skip
    (tmp_path / "acc.json").write_text(json.dumps(file), encoding="utf-8")
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\naccelerate launch --config_file acc.json {line}\n", encoding="utf-8")
    return zeroplan("check", "run.sh")


@pytest.mark.parametrize(
    ("line", "precision", "messages"),
    [
        (f"t.py {ARGUMENTS} --gradient_accumulation_steps 4", "no", []),
        (f"t.py {ARGUMENTS} --gradient_accumulation_steps 2", "no", ["4 for gradient_accumulation_steps"]),
        (f"t.py {ARGUMENTS} --gradient_accumulation_steps 4 --max_grad_norm 0.5", "no", ["1.0 for gradient_clipping"]),
        (f"t.py {ARGUMENTS} --gradient_accumulation_steps 4", "bf16", ["true for enabled"]),
        (f"t.py {ARGUMENTS} --gradient_accumulation_steps 4 --bf16", "bf16", []),
        (f"--gradient_accumulation_steps 2 t.py {ARGUMENTS} --gradient_accumulation_steps 2", "no", []),
        (f"--mixed_precision bf16 t.py {ARGUMENTS} --gradient_accumulation_steps 4 --bf16", "no", []),
        (f"--mixed_precision bf16 t.py {ARGUMENTS} --gradient_accumulation_steps 4", "no", ["true for enabled"]),
    ],
)
def test_the_trainer_compares_accelerates_file(zeroplan, tmp_path, monkeypatch, line, precision, messages):
    """Run with accelerate 1.15 and transformers 5.24: accumulation, clipping and bf16 of the file alone stop in train(). That
    options replace fields is commands/launch.py's.
    """
    ran = accelerated(zeroplan, tmp_path, monkeypatch, FIELDS, line, precision)
    for message in messages:
        assert message in ran.out
    assert ran.out.count("the Trainer stops") == len(messages)


@pytest.mark.parametrize(
    ("config", "options", "arguments", "rule"),
    [
        ({"bf16": {"enabled": True}}, "--mixed_precision fp16", "", "ZP803"),
        ({"fp16": {"enabled": True}}, "--mixed_precision bf16", "", "ZP803"),
        ({"bf16": {"enabled": True}}, "--mixed_precision bf16", "", ""),
        ({"bf16": {"enabled": True}}, "--mixed_precision no", "", ""),
        ({}, "--mixed_precision fp16", "", ""),
        ({"bf16": {"enabled": True}}, "--mixed_precision fp16", f"{ARGUMENTS} --bf16", ""),
        ({"bf16": {"enabled": "auto"}}, "--mixed_precision bf16", ARGUMENTS, "ZP620"),
        ({}, "--mixed_precision bf16", ARGUMENTS, "ZP620"),
        ({"bf16": {"enabled": "auto"}}, "--mixed_precision bf16", f"{ARGUMENTS} --bf16", ""),
        ({"bf16": {"enabled": "auto"}}, "--mixed_precision fp16", f"{ARGUMENTS} --bf16", ""),
    ],
)
@pytest.mark.parametrize("by_file", [True, False])
def test_the_launchers_precision_beside_a_file(zeroplan, tmp_path, monkeypatch, config, options, arguments, rule, by_file):
    """Each was run with accelerate 1.15, transformers 5.24 and deepspeed 0.19.8 on the CPU: ZP803 where DeepSpeedPlugin's
    set_mixed_precision raises ValueError, ZP620 where the Trainer's comparison does, nothing where it trains.
    """
    monkeypatch.chdir(tmp_path)
    whole = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2},
             "train_batch_size": "auto", **config}  # fmt: skip
    (tmp_path / "ds.json").write_text(json.dumps(whole), encoding="utf-8")
    named = "{distributed_type: DEEPSPEED, num_processes: 2, mixed_precision: %s, deepspeed_config: {deepspeed_config_file: ds.json}}"
    (tmp_path / "acc.yaml").write_text(named % "bf16", encoding="utf-8")  # an option wins over it, run too
    how = "--config_file acc.yaml" if by_file else "--use_deepspeed --num_processes 2 --deepspeed_config_file ds.json"
    (tmp_path / "run.sh").write_text(f"accelerate launch {how} {options} t.py {arguments}\n", encoding="utf-8")
    ran = zeroplan("check", "run.sh", "--format", "json")
    stops = [one["rule"] for one in ran.json["findings"] if one["severity"] == "error" or one["rule"] == "ZP803"]
    assert stops == ([rule] if rule else [])


def test_a_precision_of_the_file_alone_beside_another_file_stops(zeroplan, tmp_path, monkeypatch):
    """Run: DeepSpeedPlugin._deepspeed_config_checks of accelerate 1.15 raises ValueError."""
    (tmp_path / "ds.json").write_text(json.dumps(OWN), encoding="utf-8")
    ran = accelerated(zeroplan, tmp_path, monkeypatch, {"deepspeed_config_file": "ds.json"}, "t.py", "bf16")
    assert "ZP802: mixed_precision beside deepspeed_config_file" in ran.out


def test_the_trainers_own_precision_wins_over_the_launchers(zeroplan, tmp_path, monkeypatch):
    """Run: with --bf16 for the script, fields of the file and --mixed_precision fp16 it trains in bf16."""
    line = f"--mixed_precision fp16 t.py {ARGUMENTS} --gradient_accumulation_steps 4 --bf16"
    assert "the Trainer stops" not in accelerated(zeroplan, tmp_path, monkeypatch, FIELDS, line).out


@pytest.mark.parametrize(("config", "arguments", "warned"),
                         [(AUTO, "", True), (AUTO, "--bf16", False), ({**AUTO, "bf16": {"enabled": True}}, "--bf16", False)])  # fmt: skip
def test_the_launchers_precision_does_not_reach_a_config_of_the_script(check, config, arguments, warned):
    """Run: "auto" of what --deepspeed names becomes false without --bf16, whatever --mixed_precision says."""
    line = f"accelerate launch --use_deepspeed --mixed_precision bf16 t.py {ARGUMENTS} {arguments} --deepspeed ds.json\n"
    assert ("ZP309" in rules(check(line, config))) == warned


def test_options_of_accelerate_launch_win_over_its_file(zeroplan, tmp_path, monkeypatch):
    """accelerate 1.15 commands/launch.py: fields of the file are defaults alone; run: ZERO_STAGE is the option's."""
    offloads = {"zero_stage": 2, "offload_param_device": "cpu"}
    assert "ZP501" in accelerated(zeroplan, tmp_path, monkeypatch, offloads, "t.py").out
    assert "ZP501" not in accelerated(zeroplan, tmp_path, monkeypatch, offloads, "--zero_stage 3 t.py").out
    offloads["zero_stage"] = 3
    assert "ZP501" in accelerated(zeroplan, tmp_path, monkeypatch, offloads, "--zero_stage 2 t.py").out


def test_an_option_that_turns_deepspeed_off_is_said(zeroplan, tmp_path, monkeypatch):
    """Run with accelerate 1.15: no variable of DeepSpeed's reaches the script."""
    ran = accelerated(zeroplan, tmp_path, monkeypatch, FIELDS, "--multi_gpu t.py")
    assert "--multi_gpu: accelerate launch uses no DeepSpeed" in ran.out + ran.err


@pytest.mark.parametrize(
    "line",
    ["trl sft --model_name_or_path x --deepspeed ds.json --output_dir o",
     "swift sft --model x --torch_dtype bfloat16 --deepspeed ds.json --output_dir o"],
)  # fmt: skip
def test_commands_have_defaults_of_their_own(zeroplan, tmp_path, monkeypatch, line):
    """TRL 1.16 SFTConfig: bf16, 2e-5; ms-swift 3.8 swift/trainers/arguments.py: micro-batch 1, weight decay 0.1."""
    monkeypatch.chdir(tmp_path)
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": 1.0,
              "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
              "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}}  # fmt: skip
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line}\n", encoding="utf-8")
    ran = zeroplan("check", "run.sh", "--format", "concise")
    assert "error" not in ran.out


def test_a_scripts_gpus_are_those_that_it_has_to_fit_on(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 8 t.py --deepspeed_config ds.json\n", encoding="utf-8")
    job = ("--model", "llama-3.1-8b", "--gpu-mem", "80", "--checkpointing", "full")
    assert "on 1 GPU (assumed" in zeroplan("check", "ds.json", *job).out
    assert zeroplan("check", "run.sh", *job).code == 0


@pytest.mark.parametrize(("kind", "rate"), [("AdamW", True), ("Adagrad", False)])
def test_a_rate_that_does_not_reach_adam(zeroplan, tmp_path, monkeypatch, kind, rate):
    """Run: AdamW without lr trains at 0.001 (ops/adam/fused_adam.py); other optimizers have defaults of their own."""
    monkeypatch.chdir(tmp_path)
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
              "zero_optimization": {"stage": 2}, "optimizer": {"type": kind}}  # fmt: skip
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "args.json").write_text('{"output_dir": "o", "learning_rate": 1e-5}', encoding="utf-8")
    ran = zeroplan("check", "ds.json", "--trainer-args", "args.json")
    assert ("learning_rate 1e-05" in ran.out and "takes 0.001" in ran.out) == rate


def test_what_stands_behind_a_module_is_its_own(check):
    """accelerate 1.15 commands/launch.py: --module runs what follows as `python -m`, and hands it all that stands behind."""
    config = {**OWN, "gradient_accumulation_steps": 4}
    for line, compared in (
        (f"accelerate launch --num_processes 2 --gradient_accumulation_steps 4 -m pkg.train {ARGUMENTS} --deepspeed ds.json", "says 1"),
        (f"accelerate launch --num_processes 2 -m pkg.train {ARGUMENTS} --gradient_accumulation_steps 2 --deepspeed ds.json", "says 2"),
    ):
        ran = check(line, config)
        assert any(f"gradient_accumulation_steps {compared}" in one["message"] for one in ran.json["findings"])


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        ("--include localhost:0,1 --num_gpus 2", True), ("--exclude localhost:0 --num_nodes 1", True),
        ("--include localhost:0 --exclude localhost:1", True), ("--include localhost:0,1", False), ("--num_gpus 2", False),
        ("--hostfile bad", True), ("--hostfile twice", True), ("--hostfile hosts", False), ("--hostfile hosts --include a:0", False),
        ("--hostfile hosts --include localhost:0", True), ("--hostfile elsewhere", False),
    ],
)  # fmt: skip
def test_where_deepspeeds_launcher_starts_nothing(zeroplan, tmp_path, monkeypatch, options, stops):
    """Run: launcher/runner.py 0.19.8: cannot specify num_nodes/gpus with include/exclude, include and exclude are mutually
    exclusive, hostfile contains a bad entry or multiple entries, hostname not found in hostfile.
    """
    monkeypatch.chdir(tmp_path)
    config = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    for name, text in (("ds.json", config), ("bad", "[master address] slots=8\n"), ("twice", "a slots=4\na slots=4\n"),
                       ("hosts", "a slots=4\nb slots=4\n"), ("run.sh", f"deepspeed {options} t.py --deepspeed_config ds.json\n")):  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert ("error ZP827" in zeroplan("check", "run.sh", "--format", "concise").out) == stops
