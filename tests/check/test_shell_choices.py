"""Each config that conditions, loops and functions of a script decide between; each script was run in bash 5.2 with an echo in place of
the launcher.
"""

from __future__ import annotations

import pytest

CONCISE = ("--format", "concise", "--fail-on", "error")
GOOD = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
BAD = GOOD.replace("4,", "3,")
END = "torchrun --nproc_per_node 2 t.py %s --bf16\n"
BOTH = [
    'D=""\nif [ "$U" = 1 ]; then\n  D="--deepspeed b.json"\nfi\n' + END % "$D",
    'D=()\ncase "$U" in\n  1) D=(--deepspeed b.json) ;;\nesac\n' + END % '"${D[@]}"',
    'if [ "$U" = 1 ]; then D="--deepspeed b.json"; else D=""; fi\n' + END % "$D",
    'A=(--x 1)\nif [ "$U" = 1 ]; then\n  A+=(--deepspeed a.json)\nelif [ "$U" = 2 ]; then\n  A+=(--deepspeed b.json)\nfi\n' + END % '"${A[@]}"',
    'C="torchrun --nproc_per_node 2 t.py --bf16"\nif [ $N -gt 1 ]; then C="$C --deepspeed b.json"; fi\neval $C\n',
    'C=(torchrun --nproc_per_node 2 t.py --bf16)\nif [ $N -gt 1 ]; then C+=(--deepspeed b.json); fi\n"${C[@]}"\n',
    "run() {\n  local cfg=$1\n" + END % '--deepspeed "$cfg"' + "}\nrun a.json\nrun b.json\n",
    "run() {\n" + END % "--deepspeed ${2:-a.json}" + "}\nrun x\nrun x b.json\n",
    "function go {\n" + END % '"$@"' + "}\ngo --deepspeed b.json\n",
    "for cfg in a.json b.json; do\n" + END % '--deepspeed "$cfg"' + "done\n",
    "for name in a b; do\n" + END % "--deepspeed $name.json" + "done\n",
    'main() {\n  inner "$@"\n}\ninner() {\n' + END % "--deepspeed ${1:-b.json}" + '}\nmain "$@"\n',
    "never_called() {\n" + END % "--deepspeed b.json" + "}\ntrap never_called EXIT\n",
    'L="torchrun --nproc_per_node 4"\nif [ $N -gt 1 ]; then L="torchrun --nproc_per_node 2"; fi\n$L t.py --deepspeed b.json --bf16\n',
    "declare -a D=(--deepspeed b.json)\n" + END % '"${D[@]}"',
]


@pytest.mark.parametrize("text", BOTH)
def test_each_that_a_script_may_start_with(check_files, text):
    ran = check_files({"run.sh": text, "a.json": GOOD, "b.json": BAD}, *CONCISE)
    assert ran.code == 1, ran.out + ran.err
    assert "b.json:1:2: error ZP202" in ran.out
    assert not any(line.startswith("a.json") and " error " in line for line in ran.out.splitlines())


NOT_TAKEN = [
    'S=mac\nif [ "$S" == "ds" ]; then\n' + END % "--deepspeed b.json" + "else\n" + END % "--deepspeed a.json" + "fi\n",
    "S=mac\nif [[ $S = mac ]]; then\n" + END % "--deepspeed a.json" + "elif true; then\n" + END % "--deepspeed b.json" + "fi\n",
    'N=1\nif [ $N -gt 1 ]; then\n  CFG=b.json\nelse\n  CFG=a.json\nfi\n' + END % "--deepspeed $CFG",
    'U=""\nif [ -n "$U" ]; then\n' + END % "--deepspeed b.json" + "fi\n" + END % "--deepspeed a.json",
    'S=mac\nif ! [ -z "$S" ]; then S=x; fi\nif [ "$S" != mac ] && true; then :; fi\n' + END % "--deepspeed a.json",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_TAKEN)
def test_branches_that_a_script_does_not_take(check_files, text):
    ran = check_files({"run.sh": text, "a.json": GOOD, "b.json": BAD}, *CONCISE)
    assert ran.code == 0, ran.out + ran.err


def test_such_a_branch_is_named(check_files):
    ran = check_files({"run.sh": NOT_TAKEN[0], "a.json": GOOD, "b.json": BAD})
    assert "run.sh:3: a run in a branch that the script's own variables do not take: not looked at" in ran.out
    alone = check_files({"run.sh": "S=mac\nif [ $S = ds ]; then\n" + END % "--deepspeed b.json" + "fi\n", "b.json": BAD})
    assert (alone.code, alone.out) == (2, "")
    assert "a run in a branch that the script's own variables do not take" in alone.err


OPEN = [
    ': "${S:=mac}"\nif [ "$S" = ds ]; then\n',
    'S=mac\nsource $HOME/env.sh\nif [ "$S" = ds ]; then\n',
    'S=mac\nprintf -v S ds\nif [ "$S" = ds ]; then\n',
    'S=mac\neval "$1=ds"\nif [ "$S" = ds ]; then\n',
    'S=mac\nuse() { S=ds; }\nif [ -n "$1" ]; then use; fi\nif [ "$S" = ds ]; then\n',
    'S=mac\n[ -n "$1" ] && {\n  S=ds\n}\nif [ "$S" = ds ]; then\n',
    'S=mac\ncase $1 in\n--big) S=ds ;;\nesac\nif [ "$S" = ds ]; then\n',
    'i=0\nwhile [ $i -lt 3 ]; do i=$((i+1)); if [ $i -eq 2 ]; then\n',
    'S=${S:-mac}\nif [ "$S" == "ds" ]; then\n',
    'S=mac\n[ -n "$1" ] && S=ds\nif [ "$S" == "ds" ]; then\n',
    'S=mac\nif [ "$S" = "ds" ] || [ -n "$1" ]; then\n',
    'S=mac\nT=${T:-$S}\nif [ "$T" = "ds" ]; then\n',
    'if [ "$1" = "ds" ]; then\n',
    'if [ -f ds ]; then\n',
    'S=mac\nif [[ $S == d* ]]; then\n',
    'while read -r S; do if [ "$S" = ds ]; then\n',
]  # fmt: skip


@pytest.mark.parametrize("text", OPEN)
def test_branches_that_something_else_decides(check_files, text):
    ends = "fi; done\n" if "while" in text else "fi\n"
    assert check_files({"run.sh": text + END % "--deepspeed b.json" + ends, "b.json": BAD}, *CONCISE).code == 1


@pytest.mark.parametrize(
    ("call", "code"),
    [("bash sub.sh b.json 2", 1), ("N=2 ./sub.sh b.json", 1), ("export N=2\nsh sub.sh b.json > log 2>&1 &", 1), ("bash sub.sh b.json 8", 1),
     ("bash sub.sh a.json 2", 0), ("srun sub.sh b.json 2", 1), ("ROOT=$X\nexec bash $ROOT/sub.sh b.json 2", 1),
     ("ssh host 'cd x && N=2 bash sub.sh b.json'", 1)],
)  # fmt: skip
def test_what_a_script_hands_on_to_another(check_files, call, code):
    sub = 'CFG=$1\nGPUS=${N:-$2}\ntorchrun --nproc_per_node $GPUS t.py --deepspeed $CFG --bf16 "${@:3}"\n'
    ran = check_files({"run.sh": f"{call}\n", "sub.sh": sub, "a.json": GOOD, "b.json": BAD}, *CONCISE)
    assert ran.code == code, ran.out + ran.err


def test_scripts_that_start_one_another(check_files):
    ran = check_files({"run.sh": "bash b.sh\n", "b.sh": "bash run.sh\n" + END % "--deepspeed b.json", "b.json": BAD}, *CONCISE)
    assert ran.code == 1


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("if [ -d out ]; then\n%sdone\n", "error"),
        ("for i in 1 2; do\nif true; then\n%sdone\nfi\n", "error"),
        ("%sfi\n", "warning"),
        ("for i in 1 2; do if true; then\n%sfi; done\n", ""),
        ("case $1 in\na) echo done ;;\n*) echo fi ;;\nesac\n%s", ""),
        ("cat <<EOF > notes\nfi\ndone\nEOF\nwhile read -r x; do :; done < list\n%s", ""),
        ("if true; then if false; then :; fi; else\n%sfi\n", ""),
    ],
)
def test_words_that_close_nothing(check_files, text, severity):
    """As `bash -n` of bash 5.2 has it; in none of 10,744 public scripts is one seen that bash takes."""
    files = {"run.sh": text % (END % "--deepspeed a.json"), "a.json": GOOD}
    ran = check_files(files, "--format", "concise")
    assert [line.split()[1] for line in ran.out.splitlines() if "ZP853" in line] == ([severity] if severity else [])


INNER = "while [ $# -gt 0 ]; do case $1 in --gpus) GPUS=$2; shift 2;; --cfg) CFG=$2; shift 2;; esac; done\n"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"run.sh": "bash sub.sh --gpus 3 --cfg a.json\n", "sub.sh": INNER + "torchrun --nproc_per_node 2 t.py --deepspeed $CFG\n"}, 2),
        ({"run.sh": "f() { n=$1; shift; torchrun --nproc_per_node 2 t.py --deepspeed $1; }\nf exp b.json\n"}, 1),
        ({"run.sh": "bash sub.sh --deepspeed b.json --bf16\n", "sub.sh": 'torchrun --nproc_per_node 2 t.py "$@"\n'}, 1),
        ({"run.sh": "M=a\nif [ $M = b ]; then\nrun\nfi\nrun() {\n" + END % "--deepspeed b.json" + "}\n" + END % "--deepspeed a.json"}, 0),
        ({"run.sh": "C=a.json\nuse_b() { C=b.json; }\nM=a\nif [ $M = b ]; then\nuse_b\nfi\n" + END % "--deepspeed $C"}, 0),
        ({"run.sh": "C=a.json\nsource lib.sh\n" + END % "--deepspeed $C", "lib.sh": "use_b() {\n  C=b.json\n}\n"}, 0),
        ({"run.sh": "C=a.json\nsource common.sh\n", "common.sh": "C=${C:-b.json}\n" + END % "--deepspeed $C"}, 2),
        ({"run.sh": "cp b.json $OUT/d.json\n" + END % "--deepspeed $CONFIGS/d.json"}, 2),
        ({"run.sh": 'cp t.json d.json\nif [ "$1" = x ]; then\n  sed -i s/M/3/ d.json\nfi\n' + END % "--deepspeed d.json", "t.json": GOOD}, 2),
        ({"run.sh": "sed 's/\\<M\\>/4/' t.json > d.json\n" + END % "--deepspeed d.json", "t.json": GOOD.replace("4,", "M,")}, 2),
        ({"run.sh": "sed 's/[a-z]*/2/g' t.json > d.json\n" + END % "--deepspeed d.json", "t.json": GOOD}, 2),
        ({"run.sh": 'echo -e "{\\n\\"train_batch_size\\": 7}" > d.json\n' + END % "--deepspeed d.json"}, 2),
        ({"run.sh": "sed s/4,/3,/ a.json > d.tmp && mv d.tmp d.json\n" + END % "--deepspeed d.json"}, 1),
        ({"run.sh": 'A=("")\nif [ -n "$1" ]; then A=(torchrun --nproc_per_node 2 t.py --deepspeed b.json); fi\n"${A[@]}"\n'}, 1),
        ({"run.sh": "A=1+2\nB=$((A*2))\ntorchrun --nproc_per_node $B t.py --deepspeed a.json\n"}, 0),
        ({"run.sh": END % "--deepspeed /data/other/b.json"}, 2),
        ({"run.sh": f"f() {{ shift {'9' * 5000}; shift ²; torchrun --nproc_per_node 2 t.py --deepspeed $1; }}\nf b.json\n"}, 2),
    ],
)  # fmt: skip
def test_what_a_shell_does(check_files, files, code):
    """Each run in bash 5.2; where the text alone does not tell, exit code 2."""
    ran = check_files({**files, "a.json": GOOD, "b.json": BAD}, *CONCISE)
    assert ran.code == code, ran.out + ran.err
    assert "Traceback" not in ran.err
