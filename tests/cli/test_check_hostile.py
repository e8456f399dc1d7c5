"""`zeroplan check` as a process of its own on what was made to hurt it: one line, exit code 2, little memory and time.

Nothing is executed and nothing written. The worst of what is read, and has findings, keeps to the same bounds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

MEGABYTES, SECONDS = 200, 5.0
"""Of memory, and of processor time: the machine may be busy."""
CHILD = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from zeroplan.__main__ import main
if os.environ.get("AS_NOBODY"):
    import zeroplan.cli.commands.check, zeroplan.cli.check, zeroplan.report.check, zeroplan.check.yaml_reader
    import locale  # click's gettext asks it, and nobody may be unable to read Python's own files
    os.setuid(65534)
sys.argv[0] = "zeroplan"
try:
    main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
    os.write(int(os.environ["MEASURED"]), f"{peak} {used.ru_utime + used.ru_stime}".encode())
"""
"""VmHWM is of this program alone; ru_maxrss would begin with the memory of the process that started it."""
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    megabytes: float
    seconds: float


@pytest.fixture
def check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin=None, **environment):
        reading, writing = os.pipe()
        environment |= {"PYTHONPATH": str(ROOT), "MEASURED": str(writing)}
        ran = subprocess.run(
            [sys.executable, "-c", CHILD, "check", *arguments], input=stdin, stdin=None if stdin else subprocess.DEVNULL,
            capture_output=True, env={**os.environ, **environment}, pass_fds=[writing], timeout=120, check=False,
        )  # fmt: skip
        os.close(writing)
        with os.fdopen(reading) as stream:
            kilobytes, seconds = stream.read().split()
        return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode(), int(kilobytes) * 1024 / 1e6, float(seconds))

    return run


def small(ended):
    return ended.megabytes < MEGABYTES and ended.seconds < SECONDS


def refused(ended, said):
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert ended.err.startswith("zeroplan: ")
    assert said in ended.err
    assert small(ended), ended


def every_file(folder):
    """What is there, with its content and times."""
    found = {}
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            status = path.lstat()
            found[path] = (status.st_mode, status.st_mtime_ns, status.st_ino, path.read_bytes() if path.is_file() else b"")
    return found


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = 10_000
CONTENTS = {
    "50 MB of JSON": ("a.json", b'{"a": [' + b"1," * 25_000_000 + b"1]}", "50,000,010 bytes"),
    "50 MB of YAML": ("a.yaml", b"a: 1\n" * 10_000_000, "50,000,000 bytes"),
    "4 MB of JSON": ("a.json", b'{"a":' + b" " * 3_900_000 + b"1}", "3,900,007 bytes"),
    "4 MB of YAML": ("a.yaml", b"a: 1\n" * 780_000, "3,900,000 bytes"),
    "objects 10,000 deep": ("a.json", b'{"a":' * DEEP + b"1" + b"}" * DEEP, "over 100 objects or lists"),
    "lists 10,000 deep": ("a.json", b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", "over 100 objects or lists"),
    "YAML 10,000 deep": ("a.yaml", b"[" * DEEP + b"]" * DEEP, "over 50 lists or mappings"),
    "mappings 10,000 deep": ("a.yaml", b"? " * DEEP, "over 50 lists or mappings"),
    "mappings 500 deep": ("a.yaml", b"".join(b" " * at + b"a:\n" for at in range(500)), "over 50 lists or mappings"),
    "a NUL byte": ("a.json", b'{"a": "\0"}', "a NUL byte"),
    "a NUL byte in YAML": ("a.yaml", b"a: \0", "text that is not YAML"),
    "zeros": ("a.json", bytes(100_000), "a NUL byte"),
    "no UTF-8": ("a.json", b'{"a": "\xff"}', "bytes that are not UTF-8"),
    "UTF-16": ("a.json", '{"a": 1}'.encode("utf-16"), "bytes that are not UTF-8"),
    "half a pair of surrogates": ("a.json", b'{"a": "\xed\xa0\x80"}', "bytes that are not UTF-8"),
    "no UTF-8 in YAML": ("a.yaml", b"a: \xc0\x80", "bytes that are not UTF-8"),
    "a YAML bomb": ("a.yaml", BOMB.encode(), "over 20,000 values, as aliases unfold"),
    "an alias of itself": ("a.yaml", b"a: &a [*a]", "the alias 'a' of nothing before it"),
    "merges of merges": ("a.yaml", b"a: &a {x: 1}\n" + b"".join(
        b"k%d: &k%d {<<: *k%d, <<: *k%d}\n" % (at, at, at - 1, at - 1) if at else b"k0: &k0 {<<: *a}\n" for at in range(60)
    ), "over 20,000 values"),
    "a Python object": ("a.yaml", b"!!python/object/apply:os.system ['touch hacked']", "no tag is executed"),
    "a Python object inside": ("a.yaml", b"deepspeed: !!python/object/new:os.system ['touch hacked']", "no tag is executed"),
    "a Python name": ("a.yaml", b"distributed_type: !!python/name:os.system ''", "no tag is executed"),
}  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--fix",)], ids=" ".join)
@pytest.mark.parametrize(("name", "content", "said"), CONTENTS.values(), ids=CONTENTS)
def test_a_file(check, tmp_path, name, content, said, options):
    (tmp_path / name).write_bytes(content)
    before = every_file(tmp_path)
    refused(check(name, *options), said)
    assert every_file(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "said"),
    [(b'{"a": [' + b"1," * 25_000_000, "over 500,000 bytes"), (b"\xff", "not UTF-8"), (b'{"a":' * DEEP, "over 100 objects")],
    ids=["50 MB", "no UTF-8", "deep"],
)  # fmt: skip
def test_standard_input(check, content, said):
    refused(check("-", stdin=content), said)


def make(kind, path):
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        os.mkdir(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path)
    elif kind == "a link to itself":
        os.symlink(path, path)
    elif kind == "a circle of links":
        os.symlink(f"other-{path}", path)
        os.symlink(path, f"other-{path}")
    else:
        os.symlink("/dev/zero", path)


KINDS = {
    "a FIFO": "not a regular file", "a socket": "not a regular file", "a link to itself": "too many levels of symbolic links",
    "a circle of links": "too many levels of symbolic links", "zeros without an end": "not a regular file",
}  # fmt: skip


@pytest.mark.parametrize("option", [(), ("--fix",), ("--diff",)], ids=str)
@pytest.mark.parametrize(("kind", "said"), KINDS.items())
def test_what_is_no_file(check, tmp_path, kind, said, option):
    make(kind, "a.json")
    before = every_file(tmp_path)
    refused(check("a.json", *option), said)
    assert every_file(tmp_path) == before


@pytest.mark.parametrize(("kind", "said"), {**KINDS, "a folder": "a folder"}.items())
def test_what_is_no_file_beside_another(check, tmp_path, kind, said):
    """As TrainingArguments, as the config that a YAML names, and as the project's own table."""
    (tmp_path / "b.json").write_text('{"train_batch_size": 8, "bf16": {"enabled": true}}')
    make(kind, "a.json")
    refused(check("b.json", "--trainer-args", "a.json"), said)
    (tmp_path / "a.yaml").write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: a.json}\n")
    if "link" not in kind:  # they lead nowhere: a finding, not an error
        refused(check("a.yaml"), said)
    make(kind, "pyproject.toml")
    assert check("b.json").code == 0


def test_a_folder_with_the_name_of_a_file(check, tmp_path):
    os.mkdir("a.json")
    refused(check("a.json"), "a folder without one")
    refused(check("a.json", "--fix"), "a folder without one")


def test_a_folder_of_what_is_no_file(check, tmp_path):
    """All of it is passed over: none of it is a config, and links lead round in circles."""
    for at, kind in enumerate(KINDS):
        make(kind, f"ds_config_{at}.json")
    os.mkdir("ds_config.json")
    os.symlink(".", "again")
    os.symlink("..", "ds_config.json/up")
    refused(check("."), "a folder without one")
    (tmp_path / "ds_config.json" / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": true}}')
    ran = check(".")
    assert (ran.code, ran.out) == (0, "nothing found in 1 file\n"), ran
    assert small(ran)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="as root it becomes nobody, whom nobody lets in")
def test_a_file_of_another_user(check, tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"train_batch_size": "8"}')
    path.chmod(0)
    os.mkdir("closed", 0)
    for arguments in (["a.json"], ["a.json", "--fix"], ["closed"]):
        refused(check(*(str(tmp_path / name) if "-" not in name else name for name in arguments), AS_NOBODY="1"),
                "permission denied")  # fmt: skip
    assert path.read_text() == '{"train_batch_size": "8"}'


LETTERS = 499_000
LARGE = {
    "entries without commas": '{"train_batch_size":8,"a":[' + "1\n" * (LETTERS // 2) + "1]}",
    "keys and texts without quotes": "{train_batch_size:8\n" + "a:b\n" * (LETTERS // 4) + "}",
    "single quotes": "{'train_batch_size':8," + ",".join(["'a':'b'"] * (LETTERS // 8)) + "}",
    "trailing commas": '{"train_batch_size":8,"a":[' + ",".join(["[1,]"] * (LETTERS // 5)) + "]}",
    "comments": '{"train_batch_size":8,"a":1' + "/**/" * (LETTERS // 4) + "}",
    "comments that do not end": '{"a":1' + "/*" * (LETTERS // 2),
    "lists as deep as they may be": '{"train_batch_size":8,"a":[' + ",".join(["[" * 95 + "]" * 95] * (LETTERS // 191)) + "]}",
    "one key again and again": '{"train_batch_size":8,' + ",".join(['"a":1'] * (LETTERS // 6)) + "}",
    "a removed key again and again": "{" + ",".join(['"amp":{}'] * (LETTERS // 9)) + "}",
    "a key of another section again and again":
        "{" + ",".join(['"overlap_comm":true'] * (LETTERS // 20)) + ',"zero_optimization":{}}',
    "unknown keys": '{"zero_optimization":{' + ",".join(f'"k{at}":"auto"' for at in range(LETTERS // 16)) + "}}",
    "slips": '{"zero_optimization":{'
             + ",".join(f'"stage3_gather_16bit_weights_on_model_sav{at}":1' for at in range(LETTERS // 50)) + "}}",
    "parameters": '{"optimizer":{"type":"AdamW","params":{'
                  + ",".join(f'"weight_deca{at}":1' for at in range(LETTERS // 21)) + "}}}",
    "placeholders": '{"train_batch_size":8,' + ",".join(f'"k{at}":"${{X}}"' for at in range(LETTERS // 16)) + "}",
    "one name": '{"train_batch_size":8,"' + "stage3_" * (LETTERS // 7) + '":1}',
    "one number": '{"train_batch_size":' + "9" * LETTERS + "}",
    "one text of digits": '{"zero_optimization":{"reduce_bucket_size":"1' + "_1" * (LETTERS // 2) + 'x"}}',
    "one text of backslashes": '{"train_batch_size":8,"a":"' + "\\" * LETTERS + '"}',
}  # fmt: skip


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_a_large_file_with_findings(check, tmp_path, text):
    """Half a megabyte, the most that is read, and none of it kind: mended as far as that goes."""
    (tmp_path / "a.json").write_text(text)
    ran = check("a.json", "--fix")
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
    assert small(ran), (ran.megabytes, ran.seconds)


@pytest.mark.parametrize("form", ["json", "sarif", "full"])
@pytest.mark.parametrize("name", ["entries without commas", "single quotes", "trailing commas", "unknown keys"])
def test_a_large_file_of_findings_for_others(check, tmp_path, name, form):
    """Edits too, which these forms hold."""
    (tmp_path / "a.json").write_text(LARGE[name])
    ran = check("a.json", "--for", "hf", "--format", form)
    assert (ran.code, ran.err) == (1, "")
    assert small(ran), (ran.megabytes, ran.seconds)


@pytest.mark.parametrize(
    "text",
    ["".join(f"k{at}: 1e-4\n" for at in range(9_900)), "deepspeed_config:\n" + "".join(f"  zero_stag{at}: 1\n" for at in range(9_900)),
     "deepspeed: {zero_optimization: {stage: 1}, " + ", ".join(f"k{at}: {{}}" for at in range(9_900)) + "}\n"],
    ids=["keys", "fields", "inside"],
)  # fmt: skip
def test_a_large_yaml_with_findings(check, tmp_path, text):
    """As many values as are read."""
    (tmp_path / "a.yaml").write_text(text if text.startswith("deepspeed:") else f"distributed_type: DEEPSPEED\n{text}")
    ran = check("a.yaml")
    assert ran.code == 1, ran.err
    assert small(ran), (ran.megabytes, ran.seconds)
