"""Completion: the script of each shell, what it is answered, and where it is installed without harm to other files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from zeroplan.cli.app import COMMANDS

SHELLS = ("bash", "zsh", "fish")
READ_FROM = {
    "bash": (".bash_completions/zeroplan.sh", ".bashrc"), "zsh": (".zfunc/_zeroplan", ".zshrc"),
    "fish": (".config/fish/completions/zeroplan.fish", None),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("ZDOTDIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def completed(zeroplan, monkeypatch):
    """What a shell gets for words of which the last is not finished, as TYPE,VALUE."""

    def ask(*words):
        monkeypatch.setenv("_ZEROPLAN_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["zeroplan", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        ran = zeroplan()
        assert (ran.code, ran.err) == (0, "")
        return ran.out.splitlines()

    return ask


def test_commands_come_in_the_order_of_the_help(completed):
    assert completed("") == [f"plain,{name}" for name in COMMANDS]
    assert completed("es") == ["plain,estimate"]


def test_options_come_behind_a_command(completed):
    assert completed("estimate", "--par") == ["plain,--params", "plain,--partial"]
    assert completed("--") == [f"plain,--{name}" for name in ("version", "install-completion", "show-completion", "help")]


@pytest.mark.parametrize("words", [
    ("estimate", ""), ("check", "ds"), ("diff", "a.json", ""), ("models", ""), ("recommend", "-o", ""),
    ("estimate", "--config", "ds"), ("diff", "a.json", "b.json", "--config", "=", "ds"),
], ids=" ".join)  # fmt: skip
def test_files_come_where_a_file_may_stand(completed, words):
    """The shell itself completes the name."""
    assert completed(*words) == [f"file,{words[-1]}"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_shown_for_a_named_shell_or_that_of_the_environment(zeroplan, monkeypatch, shell):
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    named, own = zeroplan("--show-completion", shell), zeroplan("--show-completion")
    assert (named.code, named.err, named.out) == (0, "", own.out)
    assert f"_ZEROPLAN_COMPLETE={shell}_complete" in named.out


@pytest.mark.parametrize("option", ["--show-completion", "--install-completion"])
def test_an_unknown_shell_is_refused(zeroplan, monkeypatch, home, option):
    monkeypatch.setenv("SHELL", "")
    for words, found in (((option,), "no shell in $SHELL"), ((option, "nushell"), "'nushell'"), ((f"{option}=dash",), "'dash'")):
        ran = zeroplan(*words)
        assert (ran.code, ran.out) == (2, "")
        assert found in ran.err
        assert f"write {option} bash" in ran.err
    assert not list(home.iterdir())


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_once_and_what_stood_there_stays(zeroplan, home, shell):
    script, startup = READ_FROM[shell]
    before = "# mine, without a line end"
    if startup:
        (home / startup).write_text(before)
    for _again in range(2):
        ran = zeroplan("--install-completion", shell)
        assert (ran.code, ran.err) == (0, "")
        assert str(home / script) in ran.out
    assert (home / script).read_text() == zeroplan("--show-completion", shell).out
    files = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert files == {name for name in (script, startup) if name}
    if startup:
        first, added = (home / startup).read_text().splitlines()
        assert first == before
        assert {"bash": script, "zsh": "~/.zfunc"}[shell] in added


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_of_something_else_is_not_replaced(zeroplan, home, shell):
    script = home / READ_FROM[shell][0]
    script.parent.mkdir(parents=True)
    script.write_text("echo mine")
    ran = zeroplan("--install-completion", shell)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"zeroplan: {script}: found a file of something else")
    assert [path for path in home.rglob("*") if path.is_file()] == [script]
    assert script.read_text() == "echo mine"


def test_a_home_that_takes_no_file_is_one_line(zeroplan, home):
    (home / ".bash_completions").write_text("")
    ran = zeroplan("--install-completion", "bash")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (f"zeroplan: {home}/.bash_completions: found file exists, expected a place to write to; "
                       "write zeroplan --show-completion bash\n")  # fmt: skip


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_takes_the_script(zeroplan, home):
    (home / "zeroplan").write_text(f'#!/bin/sh\nexec {sys.executable} -m zeroplan "$@"\n')
    (home / "zeroplan").chmod(0o755)
    asked = 'COMP_WORDS=(zeroplan estimate --par); COMP_CWORD=2; _zeroplan_completion zeroplan; echo "${COMPREPLY[@]}"'
    script = f"{zeroplan('--show-completion', 'bash').out}\ncomplete -p zeroplan\n{asked}"
    paths = {"PATH": f"{home}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, **paths}, check=True)
    assert ran.stdout.splitlines()[1:] == ["--params --partial"]
    assert "-F _zeroplan_completion zeroplan" in ran.stdout
