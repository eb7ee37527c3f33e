"""The embedded model's byte-level tokenizer: 256 bytes, the Qwen2-VL and MinerU special tokens, and the fixed
prompt phrases.

The phrases (system line, role names, task prompts) are single added tokens, so that a prompt costs 13 tokens beside
its picture.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

SPECIALS = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<|ref_start|> <|ref_end|> <|md_start|> <|md_end|> <ched> <ecel> <fcel> <lcel> <ucel> <xcel> <nl> "
    "<|rotate_up|> <|rotate_down|> <|rotate_left|> <|rotate_right|> <|txt_contd|> <|paratext|>"
).split()
PHRASES = (
    "system\nYou are a helpful assistant.",
    "user\n",
    "assistant\n",
    "\nLayout Detection:",
    "\nText Recognition:",
    "\nTable Recognition:",
    "\nFormula Recognition:",
    "\nImage Analysis:",
)
VOCAB = 296  # 256 bytes + 31 specials + 8 phrases, rounded up to a multiple of 8


def build() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in PHRASES])
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token that is there."""
    found = tokenizer.token_to_id(token)
    assert found is not None, token
    return int(found)
