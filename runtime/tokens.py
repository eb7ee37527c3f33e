"""Text to token ids and back. Special tokens are never dropped: they carry the protocol."""

from __future__ import annotations

import codecs
from functools import cached_property
from typing import NamedTuple

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel

from mineru_edge.models.bundle import TOKENIZER_FILE, Bundle
from mineru_edge.models.errors import BundleError
from mineru_edge.models.records import EXPORT_AGAIN


class PromptIds(NamedTuple):
    """Token ids before the image, the placeholders of the image itself, and the ids after it."""

    before: list[int]
    image: list[int]
    after: list[int]


class Tokens:
    """The bundle's tokenizer and chat template. Byte-level only, as every Qwen2 tokenizer is."""

    def __init__(self, bundle: Bundle) -> None:
        path = bundle.file(TOKENIZER_FILE)
        try:
            self._tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise BundleError(f"{path} is not a tokenizer: {error}", hint=EXPORT_AGAIN) from error
        if not isinstance(self._tokenizer.decoder, ByteLevel):
            found = type(self._tokenizer.decoder).__name__
            raise BundleError(f"{path}: expected a ByteLevel decoder, found {found}", hint=EXPORT_AGAIN)
        self._chat = bundle.chat
        self._image_pad = bundle.special.image_pad
        self._before_image = self._encode(self._chat.before_image)

    def prompt(self, prompt: str, *, image_tokens: int) -> PromptIds:
        """The conversation around `image_tokens` placeholders, or without an image when that is 0.

        Cut at the image, which is a special token and so a boundary of the tokenizer too: the ids are those of the
        whole text at once.
        """
        if not image_tokens:
            return PromptIds(self._encode(self._chat.before_text + prompt + self._chat.end), [], [])
        after = self._encode(self._chat.after_image + prompt + self._chat.end)
        return PromptIds(self._before_image, [self._image_pad] * image_tokens, after)

    def stream(self) -> StreamText:
        return StreamText(self)

    def text(self, token_ids: list[int]) -> str:
        """All at once what a stream gives in parts."""
        stream = self.stream()
        return "".join([*map(stream.push, token_ids), stream.flush()])

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; nothing for an id the tokenizer does not have, such as padding of the head."""
        token = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        try:
            return bytes(self._byte_of[char] for char in token)
        except KeyError:  # an added token outside the byte alphabet stands for itself
            return token.encode()

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _byte_of(self) -> dict[str, int]:
        """The byte-level alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 onwards."""
        plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        moved = [byte for byte in range(256) if byte not in plain]
        return {chr(byte): byte for byte in plain} | {chr(0x100 + index): byte for index, byte in enumerate(moved)}


class StreamText:
    """Tokens in, text out as early as is safe: a character whose bytes span tokens waits for its last one."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that has become certain."""
        return self._decoder.decode(self._tokens.token_bytes(token_id))

    def flush(self) -> str:
        """What was held back: U+FFFD for a character that never got its last byte, else nothing."""
        return self._decoder.decode(b"", final=True)
