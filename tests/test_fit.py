"""Verdicts: arithmetic on a peak, and what must hold of any job."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import job
from zeroplan.costs.ledger import ledger
from zeroplan.fit import DOES_NOT_FIT, FITS, TIGHT, VERDICTS, beside_on_host, fit, gpu_fit, gpu_limit
from zeroplan.ledger import total
from zeroplan.specs.strategy import Offload
from zeroplan.units import GiB

ORDER = {verdict: place for place, verdict in enumerate(VERDICTS)}


def on(capacity, host=None, **fields):
    found = job("llama-3.2-1b", **fields)
    return found._replace(cluster=found.cluster._replace(capacity=capacity, host_memory=host))


def test_the_line_is_116_per_cent_of_the_peak_and_what_two_reports_saw_outside():
    """25 GiB at the peak of one of several ranks: 29 GiB, and 2.31 GiB outside PyTorch."""
    most = 29 * GiB + int(2.31 * GiB)
    assert gpu_fit(on(most), 25 * GiB, 0.0).verdict == FITS
    assert gpu_fit(on(most - 1), 25 * GiB, 0.0).verdict == TIGHT
    assert gpu_fit(on(25 * GiB), 25 * GiB, 0.0).verdict == DOES_NOT_FIT  # the context has no room


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(4 * GiB, 200 * GiB), share=st.floats(0.2, 1.1))
def test_a_search_looks_up_to_the_line_exactly(capacity, share):
    one = on(capacity)
    limit = gpu_limit(one, None)
    assert gpu_fit(one, limit, None).verdict == FITS
    assert gpu_fit(one, limit + 1, None).verdict != FITS
    peak = int(share * capacity)
    assert (peak <= limit) is (gpu_fit(one, peak, None).verdict == FITS)


@settings(max_examples=30, deadline=None)
@given(
    stage=st.integers(0, 3), offload=st.booleans(), smaller=st.integers(1, 200), more=st.integers(0, 200),
    host=st.one_of(st.none(), st.integers(1, 400)), more_host=st.integers(0, 400),
)  # fmt: skip
def test_more_memory_is_never_a_worse_verdict(stage, offload, smaller, more, host, more_host):
    fields = {"stage": stage, "offload_optimizer": Offload("cpu") if offload and stage else None}
    one = on(smaller * GiB // 2, host and host * GiB, **fields)
    two = on((smaller + more) * GiB // 2, host and (host + more_host) * GiB, **fields)
    before, after = fit(one, ledger(one)), fit(two, ledger(two))
    assert ORDER[after.verdict] <= ORDER[before.verdict]


def test_a_node_that_offloads_holds_processes_files_and_what_is_saved_beside_its_states():
    """8 processes of 4,080 MiB; 16-bit weights once at stage 3 and of each rank at stage 2; files of both and states."""
    psi, process = 1_235_814_400, 4080 * 2**20
    counted = {entry.name: entry.bytes for entry in beside_on_host(on(80 * GiB, stage=3, offload_optimizer=Offload("cpu")))}
    assert counted == {
        "training processes": 8 * process, "weights being saved": 2 * psi, "page cache": 2 * 2 * psi + 12 * psi,
    }  # fmt: skip
    counted = {entry.name: entry.bytes for entry in beside_on_host(on(80 * GiB, stage=2))}
    assert counted == {"training processes": 8 * process, "weights being saved": 8 * 2 * psi}


def test_an_approximate_model_is_tight_where_its_error_decides():
    one = on(20 * GiB)
    rough = one._replace(model=one.model._replace(approximate=0.10))
    peak = 15 * GiB  # 1.16 * 15 + 2.31 = 19.7; 1.276 * 15 + 2.31 = 21.5
    assert (gpu_fit(one, peak, 0.0).verdict, gpu_fit(rough, peak, 0.0).verdict) == (FITS, TIGHT)
    peak = 20 * GiB  # with context and NCCL 21.2, of which 0.9 are 19.1
    assert (gpu_fit(one, peak, 0.0).verdict, gpu_fit(rough, peak, 0.0).verdict) == (DOES_NOT_FIT, TIGHT)


def test_all_tiers_decide():
    one = on(80 * GiB, 10 * GiB, stage=2, offload_optimizer=Offload("cpu"))
    counted = ledger(one)
    verdict = fit(one, counted)
    assert (verdict.gpu.verdict, verdict.host.verdict, verdict.verdict) == (FITS, DOES_NOT_FIT, DOES_NOT_FIT)
    assert verdict.missing == {"host": total(counted.host.peak.lines) - 10 * GiB}
    assert fit(one._replace(cluster=one.cluster._replace(host_memory=None)), counted).verdict == FITS
