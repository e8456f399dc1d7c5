"""DeepSpeed's own log lines, as version 0.19.8 prints them. Where it prints GB it means GiB.

- see_memory_usage (runtime/utils.py:828-849): a message, then MA, Max_MA, CA, Max_CA over 1024³ ("GB").
- SynchronizedWallClockTimer.log (utils/timer.py:143-154): `time (ms) | fwd: 87.08 | bwd: ...`.
- ThroughputTimer.stop (utils/timer.py:264-274): samples per second, and memory over 1024³ ("GB").
- CommsLogger.log_all (utils/comms_logging.py:243-293): a table; convert_size divides by powers of 1024 ("KB", "MB").
- FlopsProfiler.print_model_profile (profiling/flops_profiler/profiler.py:291-345): counts by powers of 1000. Its
  latencies are left out: they repeat the timers', summed over the micro-steps so far.
- engine._report_progress (runtime/engine.py:3790): `step=5, skipped=0, lr=...`; step=0 when a run begins (:684).
- What the run was: the engine's optimizer line (runtime/engine.py:2661), and config.py:678's list of settings.

A log that is appended to holds several runs; the last one is kept.

Launchers put ranks, hosts and colours in front; lines are searched, not matched whole.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from zeroplan.errors import SpecError
from zeroplan.observe.lines import Lines
from zeroplan.units import GiB

EXPECTED = "a log that DeepSpeed's run has written"
LARGEST = 1_000_000_000
"""Bytes of a file."""
MOST = 400_000
"""Lines that are read closely, which takes 5 s."""
MESSAGES = (
    "Engine before forward", "Engine after forward", "Engine before backward", "Engine after backward",
    "Engine before step", "Engine after step", "DeepSpeed Engine: Before configure distributed model",
)  # fmt: skip
ELSEWHERE = "elsewhere"
"""A message of see_memory_usage that the engine does not print."""
SIZES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
COUNTS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
COLLECTIVES = {
    "all_gather_into_tensor": "all_gather", "all_gather": "all_gather", "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce", "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter": "reduce_scatter",
    "all_to_all_single": "all_to_all", "all_to_all": "all_to_all", "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
"""DeepSpeed's names of collectives, and the ledger's."""
ASKED = (
    'write "wall_clock_breakdown": true, "memory_breakdown": true, "flops_profiler": {"enabled": true}, '
    '"comms_logger": {"enabled": true} (and deepspeed.comm.log_summary() in the script), or "steps_per_print": 1 '
    "(and deepspeed.utils.logging.set_log_level_from_string('info')) into ds_config.json"
)

SETTINGS = {
    "world_size": "world size", "train_micro_batch_size_per_gpu": "batch size per GPU",
    "gradient_accumulation_steps": "accumulation", "zero_optimization_stage": "ZeRO stage",
}  # fmt: skip
"""What DeepSpeed lists of its config, and what it is called here."""
BEGINNINGS = ("Initializing TorchBackend in DeepSpeed", "DeepSpeed Engine: After args sanity test")
"""Printed before anything is trained (comm/comm.py:908, runtime/engine.py:605)."""
PACKED = {
    b"\x1f\x8b": ("a gzip file", "gunzip -c {} > run.log"), b"BZh": ("a bzip2 file", "bunzip2 -c {} > run.log"),
    b"\xfd7zXZ": ("an xz file", "xz -dc {} > run.log"), b"\x28\xb5\x2f\xfd": ("a zstd file", "zstd -dc {} > run.log"),
    b"PK\x03\x04": ("a zip file", "unzip -p {} > run.log"),
    b"\xff\xfe": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8 {} > run.log"),
    b"\xfe\xff": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8 {} > run.log"),
}  # fmt: skip
"""First bytes of files that are no plain text: what they are, and what makes text of them."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WHOLE = "([0-9]{1,15})"
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,25})?(?:e[+-]?[0-9]{1,2})?)"
_MEMORY = re.compile(rf"\bMA {_NUMBER} GB\s+Max_MA {_NUMBER} GB\s+CA {_NUMBER} GB\s+Max_CA {_NUMBER} GB")
_HOST = re.compile(rf"CPU Virtual Memory:\s+used = {_NUMBER} GB")
_TIMER = re.compile(rf"\| (\w+): {_NUMBER}(?= \||\s*$)")
_SPEED = re.compile(
    rf"global_step={_WHOLE}, RunningAvgSamplesPerSec={_NUMBER}, CurrSamplesPerSec={_NUMBER}, "
    rf"MemAllocated={_NUMBER}GB, MaxMemAllocated={_NUMBER}GB"
)
_STEP = re.compile(rf"\bstep={_WHOLE}, skipped=[0-9]+, lr=")
_PROFILE = re.compile(rf"(params per GPU|fwd MACs per GPU|fwd flops per GPU): +{_NUMBER} ([KMGT]?)(?:MACs)?\s*$")
_JOB = re.compile(rf"(world size|batch size per GPU): +{_WHOLE}\s*$")
_OPTIMIZER = re.compile(r"Creating torch\.(\w+) ZeRO stage ([0-9]) optimizer")
_SETTING = re.compile(rf"\]   ({'|'.join(SETTINGS)}) \.* *{_WHOLE}\s*$")
_SUMMARY = re.compile(r"Comm\. Op +Message Size +Count +Total Latency\(ms\)")
_OPERATION = re.compile(r"(?:\S+: )*(?:\S+:)?([a-z_]+)(?: \| \[Caller Func: .*\])?\s*$")
"""Behind a launcher's ranks and hosts, each of which a colon ends. No text can be parted in two ways: looking for one
that cannot be found takes as long as the line.
"""
_ROW = re.compile(rf"\s{_NUMBER} ?([KMGT]?B) +{_WHOLE} +{_NUMBER}(?: +{_NUMBER}){{3}}\s*$")


class Series:
    """All observations of one thing, in the order of the log."""

    def __init__(self, half: float) -> None:
        self.half = half
        """Half of the last printed digit: how far the printed value may be off."""
        self.values = array("d")
        self.lines = array("Q")

    def add(self, value: float, line: int) -> None:
        self.values.append(value)
        self.lines.append(line)


class CollectiveSummary:
    """One collective in a summary of the comms logger: all calls so far, of all sizes."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.calls, self.bytes, self.seconds, self.half = 0, 0.0, 0.0, 0.0
        """`bytes` as the comms logger counts them (comm/utils.py:65-133): of an all-gather, what each rank brings."""

    def add(self, size: str, unit: str, calls: str, milliseconds: str) -> None:
        self.calls += int(calls)
        self.bytes += int(calls) * float(size) * SIZES[unit]
        self.half += int(calls) * (0.005 * SIZES[unit] if unit != "B" else 0.0)
        self.seconds += float(milliseconds) / 1e3


class Summary:
    """One table of the comms logger, which counts from the start of the run."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        """Optimizer steps that the log had seen by then; 0 where it tells of none."""
        self.collectives: dict[str, CollectiveSummary] = {}


class Log:
    """What was read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines = 0
        """Lines of the whole file."""
        self.runs, self.first = 1, 1
        """How many there are in the file so far, and the line that this one begins with."""
        self.series: dict[tuple[str, str], Series] = {}
        """By what it is and where in the step: ('MA', 'Engine after step'), ('time', 'fwd'), ('profile', 'params')."""
        self.summaries: list[Summary] = []
        self.job: dict[str, int | str] = {}
        """What the log says of the job: 'world size', 'batch size per GPU', 'accumulation', 'ZeRO stage', 'dtype'."""
        self._message = ELSEWHERE
        self._operation: str | None = None
        self._last_step = 0

    @property
    def in_table(self) -> bool:
        """Whether rows of the comms logger's may follow."""
        return self._operation is not None

    @property
    def steps(self) -> int:
        """Optimizer steps that are told of; 0 where none is."""
        timed = self.series.get(("time", "fwd"))
        return len(timed.values) if timed else self._last_step

    def ends_before(self, line: str) -> bool:
        """Whether the line begins another run: one that comes first in a run, after steps were made."""
        if "DeepSpeed" not in line and "step=0" not in line:
            return False
        begins = any(text in line for text in BEGINNINGS) or ((match := _STEP.search(line)) and match[1] == "0")
        return bool(begins) and (self.steps > 0 or ("Max_MA", "Engine after step") in self.series)

    def followed(self) -> Log:
        """The next run of the same file."""
        log = Log(self.path)
        log.lines, log.runs, log.first = self.lines, self.runs + 1, self.lines
        return log

    def read(self, line: str) -> None:
        """Keep what a line tells."""
        if "GB" in line:
            self._memory(line)
        if "time (ms) |" in line:
            for name, value in _TIMER.findall(line):
                self._keep("time", name, float(value) / 1e3, 0.5e-5)
        elif "step=" in line:
            self._progress(line)
        elif "Engine" in line:
            self._message = next((message for message in MESSAGES if message in line), ELSEWHERE)
        elif "per GPU:" in line or "world size:" in line:
            self._profile(line)
        elif "ZeRO stage" in line or "config.py:" in line:
            self._settings(line)
        self._comms(line)

    def _keep(self, what: str, where: str, value: float, half: float) -> None:
        self.series.setdefault((what, where), Series(half)).add(value, self.lines)

    def _memory(self, line: str) -> None:
        if match := _MEMORY.search(line):
            for what, value in zip(("MA", "Max_MA", "CA"), match.groups(), strict=False):
                self._keep(what, self._message, float(value) * GiB, 0.005 * GiB)
            self._message = ELSEWHERE
        elif match := _HOST.search(line):
            self._keep("host", "used", float(match[1]) * GiB, 0.005 * GiB)

    def _progress(self, line: str) -> None:
        if match := _SPEED.search(line):
            self._last_step = int(match[1])
            for what, value in zip(("average", "current"), match.groups()[1:3], strict=True):
                self._keep("samples/s", what, float(value), 0.0)
            for what, value in zip(("MemAllocated", "MaxMemAllocated"), match.groups()[3:], strict=True):
                self._keep(what, "throughput", float(value) * GiB, 0.005 * GiB)
        elif match := _STEP.search(line):
            self._last_step = int(match[1])

    def _profile(self, line: str) -> None:
        if match := _PROFILE.search(line):
            factor = COUNTS[match[3]]
            self._keep("profile", match[1], float(match[2]) * factor, 0.005 * factor)
        elif match := _JOB.search(line):
            self.job[match[1]] = int(match[2])

    def _settings(self, line: str) -> None:
        if match := _OPTIMIZER.search(line):
            self.job["dtype"], self.job["ZeRO stage"] = match[1], int(match[2])
        elif match := _SETTING.search(line):
            self.job[SETTINGS[match[1]]] = int(match[2])

    def _comms(self, line: str) -> None:
        if _SUMMARY.search(line):
            self.summaries.append(Summary(self.steps))
            self._operation = ""
        elif "Breakdown with straggler effect" in line:
            self._operation = None
        elif self._operation is None:
            return
        elif match := _ROW.search(line):
            if name := COLLECTIVES.get(self._operation):
                summary = self.summaries[-1].collectives.setdefault(name, CollectiveSummary(self.lines))
                summary.add(match[1], match[2], match[3], match[4])
        elif match := _OPERATION.match(line):
            self._operation = match[1]


def read_log(path: str) -> Log:
    """Raises `SpecError` for what cannot be read, and where no line is DeepSpeed's."""
    log = Log(path)
    try:
        with Path(path).open("rb") as file:
            _check_text(path, file.read(8))
            file.seek(0)
            lines = Lines(file)
            for looked_at, piece in enumerate(lines):
                if looked_at == MOST:
                    raise SpecError(path, f"over {MOST:,} lines that DeepSpeed may have written", f"{EXPECTED}, or its "
                                    "last part", f"tail -n {MOST // 2} {quote(path)} > end.log")  # fmt: skip
                log.lines = piece.line
                for text in _texts(piece.text):
                    log = log.followed() if log.ends_before(text) else log
                    log.read(text)
                lines.every = log.in_table
            log.lines = lines.count
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise SpecError(path, said.lower(), EXPECTED, "its path") from error
    if not log.series and not any(summary.collectives for summary in log.summaries):
        last = f" in the last of {log.runs} runs, from line {log.first:,} on" if log.runs > 1 else ""
        raise SpecError(
            path, f"no known line{last}, {log.lines:,} read",
            "DeepSpeed's see_memory_usage, 'time (ms) |', RunningAvgSamplesPerSec, comms logger's summary or flops "
            f"profiler; {ASKED}",
        )  # fmt: skip
    return log


def _check_text(path: str, start: bytes) -> None:
    for magic, (kind, command) in PACKED.items():
        if start.startswith(magic):
            raise SpecError(path, kind, "a log as plain text in UTF-8", command.format(quote(path)))


def _texts(piece: bytes) -> Iterator[str]:
    """Without colours; a progress bar's carriage returns part what follows them from it."""
    return filter(None, _COLOUR.sub("", piece.decode("utf-8", "replace")).split("\r"))
