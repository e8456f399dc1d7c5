"""The findings of a file, whatever it is: a launch script, Python, or a config and what has or names one."""

from __future__ import annotations

from zeroplan.check.document import Beside
from zeroplan.check.files import check_config_file
from zeroplan.check.kind import is_script
from zeroplan.check.named_config import CheckedFiles, Made
from zeroplan.check.python_reader import is_python
from zeroplan.check.setting import Setting


def check_file(name: str, text: str, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """Raises `SpecError` for what is no config at all, and for what is another's file."""
    if is_script(name, text):
        from zeroplan.check.script import started  # where there is such a file

        return started(name, text, setting, beside, made)
    if is_python(name, text):
        from zeroplan.check.python_file import check_python  # where there is such a file

        return check_python(name, text, setting, beside, made)
    return check_config_file(name, text, setting, beside, made)
