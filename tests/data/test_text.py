"""Texts: reading, encoding, splitting, and batches without lost or repeated characters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrl_tf.data.text import (
    SHAKESPEARE,
    Characters,
    TextBatches,
    character_frequencies_bits,
    load_text,
    split_text,
)


def test_load_text_reads_the_packaged_text():
    text = load_text()
    assert 250_000 < len(text) < 300_000
    assert SHAKESPEARE.stat().st_size < 300_000
    assert {"First Citizen:", "AUFIDIUS:", "KING RICHARD III:"} <= set(text.splitlines())


def test_any_file_in_utf8_can_be_read(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("naïve 中文", encoding="utf-8")
    assert load_text(file, min_characters=8) == "naïve 中文"


def test_unreadable_files_raise(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.txt cannot be read: No such file"):
        load_text(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match=r"cannot be read: Is a directory"):
        load_text(tmp_path)
    file = tmp_path / "text.txt"
    file.write_bytes(b"caf\xe9 au lait")
    with pytest.raises(ValueError, match=r"must be in UTF-8; received the byte 0xe9 at position 3"):
        load_text(file)
    file.write_text("short")
    with pytest.raises(ValueError, match=r"text.txt must have at least 6 characters; received 5"):
        load_text(file, min_characters=6)


@given(st.text("abcé中\n", min_size=1))
def test_codes_decode_to_the_text(text):
    characters = Characters(text)
    codes = characters.encode(text)
    assert characters.decode(codes) == text
    assert set(codes) == set(range(len(characters)))


def test_an_unknown_character_raises():
    with pytest.raises(ValueError, match=r"characters of the original text; received 'z'"):
        Characters("fu").encode("fuzz")


@given(st.integers(10, 500))
def test_the_parts_join_to_the_text(size):
    parts = split_text(np.arange(size))
    assert list(parts) == ["train", "validation", "test"]
    np.testing.assert_array_equal(np.concatenate(list(parts.values())), np.arange(size))
    assert len(parts["validation"]) == len(parts["test"]) == size // 10


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 60))
def test_rows_continue_from_batch_to_batch(rows, length, rest):
    text = np.arange(rows * length + 1 + rest)
    data = TextBatches(text, rows, length)
    inputs, targets = (
        np.concatenate(parts, axis=1) for parts in zip(*map(data.__getitem__, range(len(data))))
    )
    np.testing.assert_array_equal(inputs + 1, targets)
    np.testing.assert_array_equal(np.diff(inputs, axis=1), 1)
    assert inputs.shape == (rows, len(data) * length)
    assert len(set(inputs.ravel())) == inputs.size > len(text) - 1 - rows * length


def test_too_few_characters_raise():
    with pytest.raises(ValueError, match=r"must have at least 9 characters .*; received 8"):
        TextBatches(np.arange(8), batch_size=2, length=4)


def test_character_frequencies_bits():
    codes = np.repeat(np.arange(4), 10_000)
    assert character_frequencies_bits(codes, codes) == pytest.approx(2.0)
    rare = character_frequencies_bits(np.zeros(7, int), np.array([1]))
    assert rare == pytest.approx(-np.log2(1 / 9))
