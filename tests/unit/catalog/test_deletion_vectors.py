"""Deletion vectors are written as PyIceberg reads them, and damaged ones are not taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from sparkwap.catalog import deletion_vectors
from sparkwap.catalog.deletion_vectors import VectorError

# PyIceberg cannot return a bitmap of 2^32 positions that is empty.
positions = st.sets(st.integers(0, 2**33 - 1), max_size=20).map(lambda given: given | {0, 2**32})


@given(st.dictionaries(st.text(min_size=1, max_size=5), positions, min_size=1, max_size=3))
def test_other_readers_find_the_same_positions(given: dict[str, set[int]]) -> None:
    file, places = deletion_vectors.write({path: BitMap64(one) for path, one in given.items()})
    vectors = deletion_vectors_from_puffin_file(PuffinFile(file))
    found = {one.referenced_data_file: set(one.to_vector().to_pylist()) for one in vectors}
    assert found == given
    for path, (offset, length) in places.items():
        assert set(deletion_vectors.read(file, offset)) == given[path]
        assert set(deletion_vectors.read(file[: offset + length], offset)) == given[path]
        for damaged in (file[: offset + length - 1], file[: offset + 2]):
            with pytest.raises(VectorError):
                deletion_vectors.read(damaged, offset)


def test_a_changed_byte_is_found() -> None:
    file, places = deletion_vectors.write({"a": BitMap64([1, 2, 3])})
    offset, length = places["a"]
    for at in range(offset, offset + length):
        damaged = bytearray(file)
        damaged[at] ^= 0x10
        with pytest.raises(VectorError):
            deletion_vectors.read(bytes(damaged), offset)
