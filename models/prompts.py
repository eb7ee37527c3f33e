"""Names that the host and the model share: prompts for verification, and the special tokens that the protocol needs.

The conversation itself is the model authors' library (`mineru-vl-utils`), which `edge/` drives; these few names are
here because `export/` must refuse a checkpoint without them and must not depend on that library.
"""

from __future__ import annotations

IMAGE_PAD = "<|image_pad|>"
VISION_START = "<|vision_start|>"
VISION_END = "<|vision_end|>"

BOX_START, BOX_END = "<|box_start|>", "<|box_end|>"
REF_START, REF_END = "<|ref_start|>", "<|ref_end|>"
ROTATIONS = ("<|rotate_up|>", "<|rotate_right|>", "<|rotate_down|>", "<|rotate_left|>")
TABLE_CELLS = ("<ched>", "<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>")

LAYOUT_TOKENS = (BOX_START, BOX_END, REF_START, REF_END, *ROTATIONS)
"""Without these a checkpoint cannot list the blocks of a page, and `export` refuses it."""

LAYOUT_PROMPT = "\nLayout Detection:"
TEXT_PROMPT = "\nText Recognition:"
TABLE_PROMPT = "\nTable Recognition:"
FORMULA_PROMPT = "\nFormula Recognition:"
