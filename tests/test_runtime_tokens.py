"""Prompt ids, and text that streams without breaking characters."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import IDS, fake_bundle
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from mineru_edge.models.bundle import TOKENIZER_FILE, Bundle
from mineru_edge.models.errors import BundleError
from mineru_edge.runtime.tokens import Tokens


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return fake_bundle(tmp_path)


def whole(bundle: Bundle) -> Tokenizer:
    return Tokenizer.from_file(str(bundle.file(TOKENIZER_FILE)))


@pytest.mark.parametrize("count", [1, 4, 300])
def test_a_prompt_in_parts_is_the_prompt_at_once(bundle: Bundle, count: int) -> None:
    found = Tokens(bundle).prompt("\nLayout Detection:", image_tokens=count)
    text = bundle.chat.before_image + "<|image_pad|>" * count + bundle.chat.after_image
    expected = whole(bundle).encode(text + "\nLayout Detection:" + bundle.chat.end, add_special_tokens=False).ids
    assert [*found.before, *found.image, *found.after] == expected
    assert found.image == [IDS["<|image_pad|>"]] * count


def test_a_prompt_without_an_image(bundle: Bundle) -> None:
    found = Tokens(bundle).prompt("hello", image_tokens=0)
    assert found.before == whole(bundle).encode(bundle.chat.before_text + "hello" + bundle.chat.end).ids
    assert found.image == found.after == []


TEXTS = [
    "plain",
    "Grüße, 文字 𠀀𠮷 🙂👩‍👩‍👧",
    "<fcel>a<nl><|box_start|>",
    " space\nline\ttab",
    "a\u0301e\u0301",
    "\x00\x7f\x80",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_stream_joins_to_the_text(bundle: Bundle, text: str) -> None:
    tokens, ids = Tokens(bundle), whole(bundle).encode(text).ids
    stream = tokens.stream()
    parts = [stream.push(token_id) for token_id in ids]
    assert "".join(parts) + stream.flush() == text == tokens.text(ids)
    assert "\ufffd" not in "".join(parts)
    assert text == whole(bundle).decode(ids, skip_special_tokens=False)


def test_a_character_waits_for_its_last_byte(bundle: Bundle) -> None:
    stream = Tokens(bundle).stream()
    ids = whole(bundle).encode("𠮷!").ids
    assert [stream.push(token_id) for token_id in ids] == ["", "", "", "𠮷", "!"]


def test_a_character_cut_off_shows_only_at_the_end(bundle: Bundle) -> None:
    stream = Tokens(bundle).stream()
    ids = whole(bundle).encode("a𠮷").ids[:-1]
    assert [stream.push(token_id) for token_id in ids] == ["a", "", "", ""]
    assert stream.flush() == "\ufffd"


@pytest.mark.parametrize("raw", [b"\xffa", b"\xe6\x96a", b"a\x80\x80b", b"\xf0\x9f\x99", b"\xc0\xafx", b"\xed\xa0\x80"])
def test_bytes_that_are_no_text_become_what_the_tokenizer_makes_of_them(bundle: Bundle, raw: bytes) -> None:
    tokenizer = whole(bundle)
    byte_ids = {Tokens(bundle).token_bytes(token_id): token_id for token_id in range(256)}
    ids = [byte_ids[bytes([byte])] for byte in raw]
    assert Tokens(bundle).text(ids) == tokenizer.decode(ids, skip_special_tokens=False)
    assert Tokens(bundle).text(ids) == raw.decode("utf-8", "replace")


def test_every_single_token_is_what_the_tokenizer_says(bundle: Bundle) -> None:
    tokenizer, tokens = whole(bundle), Tokens(bundle)
    for token_id in range(tokenizer.get_vocab_size()):
        assert tokens.text([token_id]) == tokenizer.decode([token_id], skip_special_tokens=False)


def test_merged_tokens_and_added_tokens_with_spaces(tmp_path: Path) -> None:
    bundle = fake_bundle(tmp_path)
    alphabet = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(
        models.BPE(vocab={**alphabet, "Ġa": 256, "æĸĩ": 258, "æĸ": 257}, merges=[("Ġ", "a"), ("æ", "ĸ"), ("æĸ", "ĩ")])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<a b>", "é 文"])
    tokenizer.save(str(tmp_path / TOKENIZER_FILE))
    ids = tokenizer.encode("x a文<a b>é 文y").ids
    assert 256 in ids
    assert 258 in ids
    assert Tokens(bundle).text(ids) == "x a文<a b>é 文y" == tokenizer.decode(ids, skip_special_tokens=False)


def test_an_id_beyond_the_tokenizer_says_nothing(bundle: Bundle) -> None:
    assert Tokens(bundle).text([319]) == ""


def test_a_damaged_tokenizer_is_a_bundle_error(bundle: Bundle) -> None:
    bundle.file(TOKENIZER_FILE).write_text("{", encoding="utf-8")
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        Tokens(bundle)


def test_another_kind_of_tokenizer_is_refused(bundle: Bundle) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.save(str(bundle.file(TOKENIZER_FILE)))
    with pytest.raises(BundleError, match="ByteLevel"):
        Tokens(bundle)
