from __future__ import annotations

import pytest

from zeroplan.errors import QuantityError
from zeroplan.units import count, gb, gib, read_bytes, read_count, read_rate, seconds

COUNTS = [("7B", 7 * 10**9), ("6.74e9", 6_740_000_000), ("350M", 350_000_000), ("6738415616", 6_738_415_616),
          ("1.5T", 1_500_000_000_000), ("0.5b", 500_000_000), ("2k", 2000)]  # fmt: skip
SIZES = [("80GB", 80 * 10**9), ("80GiB", 80 * 2**30), ("81559MiB", 81559 * 2**20), ("79.25 GiB", int(79.25 * 2**30)),
         ("1TB", 10**12), ("512B", 512), ("1.5TiB", 3 * 2**39), ("8e10B", 80 * 10**9)]  # fmt: skip
RATES = [("450 GB/s", 450e9, "B/s"), ("400 Gb/s", 50e9, "B/s"), ("989 TFLOP/s", 989e12, "FLOP/s")]
BAD_COUNTS = ["", "7 B", "-7B", "0", "nan", "inf", "1e400", "7X", "7.5", "7GB", "0x10", "1_000", "٧B", "+7B", "7Bn"]
BAD_SIZES = ["", "80", "80Gb", "80 gib", "80gb", "80XB", "-1GB", "0GB", "nanGB", "80  GB", "1e30GB", "GB"]
BAD_RATES = [("450GB/s", "B/s"), ("450", "B/s"), ("450 GB", "B/s"), ("989 TFLOP/s", "B/s"), ("450 GB/s", "FLOP/s")]


@pytest.mark.parametrize(("text", "value"), COUNTS)
def test_counts(text, value):
    assert read_count(text) == value


@pytest.mark.parametrize(("text", "value"), SIZES)
def test_sizes(text, value):
    assert read_bytes(text) == value


@pytest.mark.parametrize(("text", "value", "unit"), RATES)
def test_rates(text, value, unit):
    assert read_rate(text, "link", unit) == value


@pytest.mark.parametrize("text", BAD_COUNTS)
def test_bad_counts(text):
    with pytest.raises(QuantityError, match="expected"):
        read_count(text)


@pytest.mark.parametrize("text", BAD_SIZES)
def test_bad_sizes(text):
    with pytest.raises(QuantityError, match="expected"):
        read_bytes(text)


@pytest.mark.parametrize(("text", "unit"), BAD_RATES)
def test_bad_rates(text, unit):
    with pytest.raises(QuantityError, match="expected"):
        read_rate(text, "link", unit)


def test_texts_carry_their_unit():
    assert gb(38_500_000_000) == "38.5 GB"
    assert gb(26_250_000_000) == "26.25 GB"
    assert gb(112 * 10**9) == "112 GB"
    assert gib(2**30) == "1.00 GiB"
    assert gib(3 * 2**20) == "3.00 MiB"
    assert gib(3 * 2**10) == "3.00 KiB"
    assert gib(168) == "168 B"
    assert gb(4000) == "4.00 kB"
    assert gib(0) == "0 GiB"
    assert seconds(0.0214) == "21 ms"
    assert seconds(1.5) == "1.50 s"
    assert count(6_738_415_616) == "6.74B"
    assert count(999_999_999_999) == "1T"
    assert (count(999_885_952), count(999_400_000)) == ("1B", "999M")
    assert count(10**15) == "1000T"
