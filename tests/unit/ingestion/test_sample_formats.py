"""Sample formats against exact arithmetic, checksums, and the telling of IBM from IEEE."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segy_bytes import encode_ibm

from ingestion.segy.samples import FormatEvidence, decode, trace_checksums


def exact_ibm(word: int) -> Fraction:
    sign = -1 if word >> 31 else 1
    return sign * Fraction(word & 0xFFFFFF, 1 << 24) * Fraction(16) ** ((word >> 24 & 0x7F) - 64)


def raw(words: list[int], order: str) -> np.ndarray:
    return np.array([words], np.dtype("u4").newbyteorder(order)).view(np.uint8)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.sampled_from("><"))
def test_ibm_is_decoded_exactly_or_counted(words: list[int], order: str) -> None:
    samples, overflow, inexact = decode(raw(words, order), "ibm", order)  # type: ignore[arg-type]
    exact = [exact_ibm(word) for word in words]
    largest = Fraction(float(np.finfo(np.float32).max))
    too_large = [abs(value) > largest for value in exact]
    assert overflow == sum(too_large)
    assert np.isinf(samples[0]).tolist() == too_large
    kept = [(Fraction(float(s)), e) for s, e, gone in zip(samples[0], exact, too_large, strict=True) if not gone]
    assert inexact == sum(s != e for s, e in kept)
    assert all(abs(s - e) <= Fraction(1, 2**149) for s, e in kept)  # only below float32's normal range


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("name", "kind"), [("int8", "i1"), ("int16", "i2"), ("int32", "i4"), ("ieee", "f4")])
def test_other_formats_are_read_in_their_byte_order(name: str, kind: str, order: str) -> None:
    values = np.array([[-128, -1, 0, 1, 127]], np.dtype(kind).newbyteorder(order))  # type: ignore[arg-type]
    samples, overflow, inexact = decode(values.view(np.uint8), name, order)  # type: ignore[arg-type]
    assert samples.tolist() == [[-128, -1, 0, 1, 127]]
    assert (overflow, inexact) == (0, 0)


def test_integers_that_float32_rounds_are_counted() -> None:
    values = np.array([[2**24, 2**24 + 1, 2**31 - 1, -(2**31)]], ">i4")
    assert decode(values.view(np.uint8), "int32", ">")[2] == 2


@given(
    st.integers(1, 8),
    st.integers(1, 200),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_one_changed_sample_changes_the_checksum(traces: int, count: int, seed: int, data: st.DataObject) -> None:
    samples = np.random.default_rng(seed).normal(size=(traces, count)).astype(np.float32)
    before = trace_checksums(samples)
    trace, place = data.draw(st.integers(0, traces - 1)), data.draw(st.integers(0, count - 1))
    changed = samples.copy()
    changed.view(np.uint32)[trace, place] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    assert (trace_checksums(changed) != before).tolist() == [t == trace for t in range(traces)]


@given(st.integers(2, 300), st.data())
def test_checksums_of_parts_add_up(count: int, data: st.DataObject) -> None:
    samples = np.random.default_rng(count).normal(size=(3, count)).astype(np.float32)
    cut = data.draw(st.integers(1, count - 1))
    parts = trace_checksums(samples[:, :cut]) + trace_checksums(samples[:, cut:], cut)
    assert (parts == trace_checksums(samples)).all()


def evidence(words: np.ndarray) -> FormatEvidence:
    found = FormatEvidence()
    found.add(words.astype("<u4")[None].view(np.uint8), "<")
    return found


@settings(max_examples=40)
@given(
    st.floats(-9, 9),
    st.sampled_from(["normal", "laplace", "positive", "integers"]),
    st.integers(0, 2**32 - 1),
)
def test_formats_are_told_apart_for_any_amplitudes(magnitude: float, kind: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = {
        "normal": generator.normal(size=5000),
        "laplace": generator.laplace(size=5000),
        "positive": generator.gamma(0.5, size=5000),  # over several powers of 16: less is left to the header
        "integers": np.round(generator.normal(0, 3000, 5000)) / 10**magnitude,
    }[kind] * 10**magnitude
    ieee, ibm = values.astype(np.float32).view(np.uint32), encode_ibm(values.astype(np.float32).astype(np.float64))
    assert evidence(ieee).contradicts("ieee") is None
    assert evidence(ibm).contradicts("ibm") is None
    assert evidence(ieee).contradicts("ibm") == "ieee"
    assert evidence(ibm).contradicts("ieee") == "ibm"


def test_narrow_ranges_and_few_samples_are_left_to_the_header() -> None:
    narrow = np.random.default_rng(0).uniform(5000, 8000, 5000).astype(np.float32)
    assert evidence(narrow.view(np.uint32)).contradicts("ieee") is None
    few = np.random.default_rng(0).normal(size=40).astype(np.float32)
    assert evidence(few.view(np.uint32)).contradicts("ibm") is None
