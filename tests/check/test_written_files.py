"""Configs that a script writes before it names them. Batches of 24 on 8 GPUs want 3 each: 24 = 3 * 8, and 2 * 8 * n is never 24."""

from __future__ import annotations

import pytest

CONCISE = ("--format", "concise", "--fail-on", "error")
TEMPLATE = '{"train_batch_size": BATCH, "train_micro_batch_size_per_gpu": MICRO, "zero_optimization": {"stage": STAGE}, "bf16": {"enabled": true}}\n'
RUN = "deepspeed --num_gpus 8 t.py --deepspeed_config %s\n"


@pytest.mark.parametrize(("micro", "code"), [(3, 0), (2, 1)])
@pytest.mark.parametrize(
    "writes",
    [
        'sed "s/BATCH/24/" t.json | sed -e "s/MICRO/$M/" -e s/STAGE/2/ > own.json',
        'sed "s/BATCH/24/" t.json \\\n  | sed "s/MICRO/${M}/" \\\n  | sed "s/STAGE/2/" \\\n    > own.json',
        'cat t.json | sed "s/BATCH/24/;s/MICRO/$M/;s/STAGE/2/" | tee own.json > /dev/null',
        'cp t.json own.json\nsed -i "s/BATCH/24/" own.json\nsed -i -e "s/MICRO/$M/" -e "s/STAGE/2/" own.json',
        "sed 's/BATCH/24/;s/STAGE/2/' < t.json 2>/dev/null | sed s/MICRO/$M/ > own.json",
        """echo '{"train_batch_size": 24, "bf16": {"enabled": true},' > own.json\necho "\\"train_micro_batch_size_per_gpu\\": $M}" >> own.json""",
        'cat <<EOF | sed s/24/24/ > own.json\n{"train_batch_size": 24, "train_micro_batch_size_per_gpu": $M, "bf16": {"enabled": true}}\nEOF',
    ],
)
def test_a_config_that_a_script_writes(check_files, writes, micro, code):
    ran = check_files({"run.sh": f"M={micro}\n{writes}\n{RUN % 'own.json'}", "t.json": TEMPLATE}, *CONCISE)
    assert ran.code == code, ran.out + ran.err
    assert ("ZP202" in ran.out) == bool(code)


def test_a_name_with_a_number_of_the_job(check_files):
    text = 'O=ds_$SLURM_JOB_ID.json\nsed "s/BATCH/24/;s/MICRO/2/;s/STAGE/2/" t.json > $O\nA="--deepspeed_config=$O"\ndeepspeed --num_gpus 8 t.py $A\n'
    ran = check_files({"run.sh": text, "t.json": TEMPLATE}, *CONCISE)
    assert ran.code == 1
    assert "t.json by sed:1:2: error ZP202" in ran.out


def test_what_another_word_decides(check_files):
    ran = check_files({"run.sh": f'sed "s/BATCH/$1/" t.json > own.json\n{RUN % "own.json"}', "t.json": TEMPLATE})
    assert ran.code == 2
    assert '"own.json", which the script writes with what no line sets' in ran.err


def test_files_of_yaml_with_values_that_no_line_sets(check_files):
    """Accelerate's counts are left out; the Trainer stops at fp16 true where its own is not set."""
    counts = "num_processes: $N\nmachine_rank: $RANK\nmain_process_ip: $IP\n"
    accelerate = f"cat > a.yaml <<EOF\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: %s\n{counts}EOF\naccelerate launch --config_file a.yaml t.py\n"
    assert check_files({"run.sh": accelerate % 2}, *CONCISE).code == 0
    ran = check_files({"run.sh": accelerate % 5}, *CONCISE)
    assert (ran.code, "error ZP401: 5 here" in ran.out) == (1, True)
    assert check_files({"run.sh": accelerate % "$Z"}, *CONCISE).code == 2
    training = (
        "cat > l.yaml <<EOF\nmodel_name_or_path: $MODEL\nstage: sft\nfinetuning_type: full\ndataset: a\ndeepspeed: d.json\noutput_dir: o/$NAME\n"
        "per_device_train_batch_size: $B\nbf16: true\nEOF\nllamafactory-cli train l.yaml\n"
    )
    ran = check_files({"run.sh": training, "d.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "fp16": {"enabled": true}}'}, *CONCISE)
    assert (ran.code, "error ZP620" in ran.out) == (1, True)
    assert ran.out.count(": error ") == 1


@pytest.mark.parametrize(("stage", "code"), [(2, 0), (5, 1)])
@pytest.mark.parametrize(
    "runs",
    [
        "python3 - <<EOF\nimport json\nds_config = {'train_batch_size': $N, 'zero_optimization': {'stage': %d}}\njson.dump(ds_config, open('d.json', 'w'))\nEOF\n",
        "python <<'EOF'\nimport json\nds_config = {'train_batch_size': 8,\n  'zero_optimization': {'stage': %d}}\njson.dump(ds_config, open('d.json', 'w'))\nEOF\n",
        'python -c "\nimport json\nds_config = {\'train_batch_size\': ${N}, \'zero_optimization\': {\'stage\': %d}}\njson.dump(ds_config, open(\'d.json\', \'w\'))"\n',
    ],
)
def test_a_config_that_python_of_the_script_writes(check_files, runs, stage, code):
    ran = check_files({"run.sh": runs % stage + RUN % "d.json"}, *CONCISE)
    assert ran.code == code, ran.out + ran.err
    assert ("run.sh:" in ran.out and "error ZP401: 5 here" in ran.out) == bool(code)


def test_a_file_of_accelerate_that_names_a_config_of_the_script(check_files):
    """5 processes: 24 is not 2 * 5 * n."""
    text = (
        "cat > acc.yaml <<EOF\ncompute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\n"
        "deepspeed_config:\n  deepspeed_config_file: ds_$SLURM_JOB_ID.json\n  zero3_init_flag: false\nEOF\n"
        "sed -i 's/num_processes: [0-9]*/num_processes: 5/' acc.yaml\n"
        """echo '{"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}' > ds_$SLURM_JOB_ID.json\n"""
        "accelerate launch --config_file acc.yaml t.py\n"
    )
    ran = check_files({"run.sh": text}, *CONCISE)
    assert ran.code == 1
    assert "5 GPUs" in ran.out


@pytest.mark.parametrize(("sum_of_it", "code"), [("(A + 2) * 4", 0), ("(A + 2) * 4 - 1", 1), ("48 / 2 % 25", 0), ("-A * -6", 0)])
def test_sums(check_files, sum_of_it, code):
    """Run in bash: 24, 23, 24 and 24."""
    text = f'A=4\nB=$(( {sum_of_it} ))\nsed "s/BATCH/$B/;s/MICRO/3/;s/STAGE/2/" t.json > own.json\n{RUN % "own.json"}'
    assert check_files({"run.sh": text, "t.json": TEMPLATE}, *CONCISE).code == code


@pytest.mark.parametrize("text", ["$((1/0))", "$((2**3))", "$((", "$((()))", "$((1 2))", "$((" + "(" * 120 + "1" + ")" * 120 + "))"])
def test_sums_that_are_none(check_files, text):
    ran = check_files({"run.sh": f"N={text}\ndeepspeed --num_gpus $N t.py --deepspeed ds.json\n", "ds.json": TEMPLATE.replace("BATCH", "8")})
    assert ran.code in (1, 2)
    assert "Traceback" not in ran.err


def test_what_is_redirected_is_no_argument(check_files):
    """An unknown name behind > is no option that may name a config."""
    ran = check_files({"run.sh": "deepspeed t.py --x 1 > $LOG 2>&1 &\n"})
    assert (ran.code, "may name a config" in ran.err) == (2, False)
