"""Launch scripts: files as seen from where a command starts, other shells, and commands that end too early."""

from __future__ import annotations

import shutil
import subprocess

import pytest

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_batch_size": 24}'
LINE = "deepspeed --num_gpus 8 train.py --deepspeed ds.json"
REFUSED = "ZP202"
"""6 ranks go with 4 each and 24 in all, 8 do not."""

PLACES = {
    "dirname": 'D=$(dirname "$0")\ndeepspeed --num_gpus 8 t.py --deepspeed $D/ds.json\n',
    "the usual line": 'D="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\ndeepspeed --num_gpus 8 t.py --deepspeed "$D/ds.json"\n',
    "readlink": "D=$(dirname $(readlink -f $0))\ndeepspeed --num_gpus 8 t.py --deepspeed $D/ds.json\n",
    "PWD": "deepspeed --num_gpus 8 t.py --deepspeed ${PWD}/ds.json\n",
    "pwd": "D=`pwd`\ndeepspeed --num_gpus 8 t.py --deepspeed $D/ds.json\n",
    "cd": "cd sub\ndeepspeed --num_gpus 8 t.py --deepspeed ../ds.json\n",
    "cd and PWD": "cd sub || exit\ndeepspeed --num_gpus 8 t.py --deepspeed $PWD/../ds.json\n",
    "a folder above": 'cd "$(dirname "$0")/.."\ndeepspeed --num_gpus 8 t.py --deepspeed here/ds.json\n',
}
SHELLS = {
    "tmux": f'tmux new-session -d -s x "{LINE}"\n', "ssh": f'ssh host "cd /a && {LINE}"\n',
    "bash -c": f'C="{LINE}"\nsrun -n 1 bash -lc "$C"\n', "eval": f'C="{LINE}"\neval "$C"\n',
}  # fmt: skip
NAMES = ("--ds_config", "--ds_config_path", "--deepspeed_config_file", "--ds-config", "--config")


@pytest.fixture
def check_script(zeroplan, tmp_path, monkeypatch):
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "ds.json").write_text(CONFIG)
    monkeypatch.chdir(here)

    def run(text):
        (here / "run.sh").write_text(text)
        return zeroplan("check", "run.sh")

    return run


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("name", PLACES)
def test_the_config_is_where_bash_has_it(name, check_script, tmp_path):
    """The launcher is a function that says whether the file is there."""
    ran = check_script(PLACES[name])
    assert REFUSED in ran.out, ran.out + ran.err
    text = 'deepspeed() { [ -f "$5" ] && echo there; }\n' + PLACES[name]
    (tmp_path / "here" / "run.sh").write_text(text)
    told = subprocess.run(["bash", "run.sh"], cwd=tmp_path / "here", capture_output=True, text=True, check=True)
    assert told.stdout == "there\n"


@pytest.mark.parametrize("text", SHELLS.values(), ids=SHELLS)
def test_a_text_that_another_shell_runs(text, check_script):
    assert REFUSED in check_script(text).out


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_scripts_own(name, check_script):
    assert REFUSED in check_script(f"deepspeed --num_gpus 8 train.py {name} ds.json\n").out


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("deepspeed --num_gpus 6 \\ \n  train.py --deepspeed ds.json\n", "error ZP828: the command ends before train.py"),
        ("D=\"\"\ndeepspeed --num_gpus 6 t.py --deepspeed ds.json --data $D\n  --bf16 \\\n --lr 1\n", "warning ZP828: the command ends before --bf16"),
        ("deepspeed --num_gpus 6 t.py \\\n  # why\n  --deepspeed ds.json\n", "error ZP828: the command ends before --deepspeed"),
        ("deepspeed --num_gpus 6 t.py --deepspeed ds.json \\\n\n  --bf16\n", "warning ZP828: the command ends before --bf16"),
    ],
)  # fmt: skip
def test_a_command_that_ends_too_early(text, word, check_script, tmp_path):
    """bash hands the words behind it to nobody."""
    assert word in check_script(text).out
    if shutil.which("bash"):
        script = 'deepspeed() { echo "$*"; }\n' + text
        told = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert word.rpartition(" ")[2] not in told.stdout.split()


@pytest.mark.parametrize("text", [f"{LINE.replace('8', '6')} \\\n  # --bf16\n", f"{LINE.replace('8', '6')} \\\n\necho done\n"])
def test_one_that_ends_where_its_options_do(text, check_script):
    ran = check_script(text)
    assert (ran.code, "ZP828" in ran.out) == (0, False)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("deepspeed --num-gpus 6 t.py", "unrecognized arguments: --num-gpus: deepspeed starts nothing\n"),
        ("torchrun --num_gpus 6 t.py", "write: --nproc_per_node"),
        ("torchrun --nproc_per_node all t.py", "--nproc_per_node all: torchrun starts nothing"),
        ("deepspeed --no_ssh --num_gpus 6 t.py", "--no_ssh without --node_rank"),
        ("deepspeed --launcher ssh --hostfile hosts t.py", "--launcher ssh: deepspeed starts nothing"),
        ("accelerate launch --multi_gpu --use_deepspeed t.py", "--multi_gpu and --use_deepspeed together"),
        ("accelerate launch --multi_gpu --num_processes 1 t.py", "--multi_gpu on 1 process"),
    ],
)
def test_what_a_launcher_refuses(line, word, check_script, tmp_path):
    (tmp_path / "here" / "hosts").write_text("a slots=3\nb slots=3\n")
    ran = check_script(f"{line} --deepspeed ds.json\n")
    assert ran.code == 1
    assert "error ZP827" in ran.out
    assert word in ran.out


HERE = """B=8
CFG=./tmp/d.json
cat > $CFG <<%s
{"train_batch_size": $((B*3)), "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}
EOT
deepspeed --num_gpus 8 t.py --deepspeed --deepspeed_config $CFG
"""


@pytest.mark.parametrize("where", ["> $CFG <<EOT", "<<EOT > $CFG"])
def test_a_config_that_the_script_writes(where, check_script, tmp_path):
    """bash writes 24, which is no multiple of 4 · 8."""
    text = HERE.replace("> $CFG <<%s", where)
    ran = check_script(text)
    assert "./tmp/d.json of a here-document:1:2: error ZP202: train_batch_size 24" in ran.out
    (tmp_path / "tmp").mkdir()
    script = 'deepspeed() { cat "$6"; }\n' + text
    told = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert '"train_batch_size": 24' in told.stdout


def test_a_config_written_with_what_is_not_known(check_script):
    """Where the values alone are not known, the rest is checked; `{"train_batch_size" 3}` is no JSON."""
    script = "cat > d.json <<EOT\n%s\nEOT\ndeepspeed t.py --deepspeed d.json\n"
    ran = check_script(script % '{"train_batch_size": $N, "zero_optimization": {"stage": 4, "reduce_bucket_size": ${B}00}}')
    assert (ran.code, "error ZP401: 4 here" in ran.out) == (1, True)
    assert "what no line sets decides train_batch_size, zero_optimization.reduce_bucket_size" in ran.out
    assert ran.out.count(": error ") == 1
    ran = check_script(script % '{"train_batch_size" $N}')
    assert (ran.code, '"d.json", which the script writes with what no line sets' in ran.err) == (2, True)


@pytest.mark.parametrize("text", ["sbatch <<'EOT'\n%s\nEOT\n", "ssh h bash <<EOT\n%s\nEOT\n"])
def test_commands_in_a_here_document(text, check_script):
    assert REFUSED in check_script(text % LINE).out


def test_variables_of_a_file_that_is_sourced(check_script, tmp_path):
    (tmp_path / "here" / "run.env").write_text('ARGS="--deepspeed ds.json"\nexport N=8\n')
    assert REFUSED in check_script("source ./run.env\ndeepspeed --num_gpus $N t.py ${ARGS}\n").out


@pytest.mark.parametrize(
    "value", ['O=${O:-"/x/lr${LR}-b${B}/"}\nG=$(python -c "print(1)")\nN=8', 'N=${N:-${M:-8}}', "N=8\nX=a\nif true; then X=\"$X b\"; fi"]
)
def test_variables_within_variables(value, check_script):
    assert REFUSED in check_script(f'{value}\ndeepspeed --num_gpus $N t.py $X --deepspeed "ds.json"\n').out


def test_an_option_that_a_condition_adds(check_script):
    text = 'CMD="deepspeed --num_gpus 8 t.py --deepspeed ds.json"\nif [ -n "$1" ]; then\n  CMD="$CMD --lr $1"\nfi\n$CMD\n'
    assert REFUSED in check_script(text).out


def test_processes_that_each_start_a_shell(check_script):
    ran = check_script('deepspeed --num_gpus 8 --no_python bash -c "python -u t.py --deepspeed --deepspeed_config=ds.json"\n')
    assert REFUSED in ran.out
    assert "given to deepspeed, on 8 GPUs" in ran.out


def test_a_folder_above_that_a_run_starts_in(check_script, tmp_path, zeroplan):
    deep = tmp_path / "here" / "sub" / "examples"
    deep.mkdir()
    (tmp_path / "here" / "sub" / "conf").mkdir()
    (tmp_path / "here" / "sub" / "conf" / "d.json").write_text(CONFIG)
    (deep / "run.sh").write_text("deepspeed --num_gpus 8 t.py --deepspeed conf/d.json\n")
    assert "sub/conf/d.json:1:" in zeroplan("check", "sub/examples/run.sh").out


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("deepspeed t.py $ARGS\n", "arguments that no line sets, which may name a config"),
        ("srun sh in.sh\n", "a script that starts in.sh, which may give one"),
    ],
)
def test_why_nothing_is_looked_at(text, word, check_script):
    ran = check_script(text)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err


@pytest.mark.parametrize(
    "text", ['"$PYTHON" "$SCRIPT" --backend deepspeed --seq-len "$N"\n', "python submit.py --a 1 \\\n  # why\n  --env X=1\n"]
)
def test_what_starts_no_training(text, check_script):
    ran = check_script(text)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("name", ["../secret.env", "sub/../../secret.env"])
def test_nothing_above_is_sourced(name, check_script, tmp_path):
    (tmp_path / "secret.env").write_text("TOKEN=abc123\n")
    ran = check_script(f"source {name}\ndeepspeed --num_gpus 8 t.py --deepspeed $TOKEN\n")
    assert "abc123" not in ran.out + ran.err


GOOD = CONFIG.replace("24", "32")
BAD = GOOD.replace("2}", "5}")
CHOICES = [
    'if [ "$1" = big ]; then\n  CFG=b.json\nelse\n  CFG=a.json\nfi\n',
    'CFG=a.json\n[ -n "$1" ] && CFG=b.json\n',
    'case "$1" in\n  2) CFG=a.json ;;\n  3) CFG=b.json ;;\nesac\n',
    'NAME=a\nif [ "$1" = big ]; then\n  NAME=b\nfi\nCFG=$NAME.json\n',
    'CFG="${CFG:-}"\nif [ -z "$CFG" ]; then\n  CFG=a.json\n  if [ "$1" = 2 ]; then CFG=b.json; fi\nfi\n',
]


@pytest.mark.parametrize("choice", CHOICES)
def test_each_config_that_a_condition_decides_between(check_files, choice):
    ran = check_files({"run.sh": f'{choice}deepspeed train.py --deepspeed_config "$CFG"\n', "a.json": GOOD, "b.json": BAD}, "--format", "concise")
    assert ran.code == 1
    assert "b.json:1:" in ran.out
    assert not any("a.json" in line and " error " in line for line in ran.out.splitlines())


def test_a_config_that_the_environment_may_decide(check_files):
    ran = check_files({"run.sh": 'CFG="${CFG}"\ndeepspeed train.py --deepspeed_config "$CFG"\n', "a.json": GOOD})
    assert ran.code == 2
