"""The findings of a file, whatever it is: a script, Python, a notebook, a hostfile, a config or what has one."""

from __future__ import annotations

from zeroplan.catalog.hostfile import slots_by_host
from zeroplan.check.check import placed
from zeroplan.check.document import Beside, Document, ValueNode
from zeroplan.check.files import check_config_file
from zeroplan.check.kind import is_hostfile, is_notebook, is_script
from zeroplan.check.named_config import CheckedFiles, Made
from zeroplan.check.python_reader import is_python
from zeroplan.check.rules.hosts import of_hostfile
from zeroplan.check.setting import Setting


def check_file(name: str, text: str, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """Raises `SpecError` for what is no config at all, and for what is another's file."""
    if is_script(name, text):
        from zeroplan.check.script import started  # where there is such a file

        return started(name, text, setting, beside, made)
    if is_python(name, text):
        from zeroplan.check.python_file import check_python  # where there is such a file

        return check_python(name, text, setting, beside, made)
    if is_notebook(name):
        from zeroplan.check.notebook import check_notebook  # where there is such a file

        return check_notebook(name, text, setting, beside, made)
    if is_hostfile(name, text):
        return _hostfile(name, text)
    return check_config_file(name, text, setting, beside, made)


def _hostfile(name: str, text: str) -> CheckedFiles:
    """What DeepSpeed's launcher says of it, and the ranks that it has room for."""
    document = Document(name, text, ValueNode(0, len(text), members=[]))
    findings = [placed(document, hit) for hit in of_hostfile(name, text)]
    hosts = {} if findings else slots_by_host(name, text)
    note = f"{name}: a hostfile: {len(hosts)} host{'s' * (len(hosts) > 1)}, {sum(hosts.values())} slots"
    return CheckedFiles(findings, {name: text}, [note] if hosts else [])
