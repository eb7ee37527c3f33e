"""One decoded picture of any mode becomes upright RGB of a bounded size, with nothing on it lost from sight.

numpy is imported where it is needed, which most pictures do not: it is half of a drawing process.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from PIL import ExifTags, Image, ImageOps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RASTER_PX = 3500 * 3500  # a picture larger than this is reduced: more does not help to read a page and fills memory
_SMALL_PX = 1 << 20  # what is enough to judge whether text shows on a ground
_HIDDEN = 0.25  # on white less than this share of the contrast on black: what is drawn is light
_TURNS = {  # EXIF orientation -> what sets it upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def upright_rgb(image: Image.Image, *, raster_px: int = RASTER_PX) -> Image.Image:
    """A new upright RGB picture of at most `raster_px` pixels; `image` is left as it is.

    EXIF orientation is applied. Transparency lies on white, or on black when what is drawn is so light that it would
    vanish on white. 16 and 32 bit values are scaled. Raises what Pillow raises when the data is damaged.
    """
    image.load()
    turn = None
    with contextlib.suppress(Exception):  # a damaged EXIF block says nothing about the pixels
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    drawn = _reduced(_rgb(image, raster_px), raster_px)  # first, so that only the smaller picture is turned
    if turn is not None:
        return drawn.transpose(turn)
    return drawn.copy() if drawn is image else drawn


def _rgb(image: Image.Image, raster_px: int) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        import numpy as np

        grey = Image.fromarray(_eight_bits(np.asarray(image)))
        return (ImageOps.invert(grey) if _white_is_zero(image) else grey).convert("RGB")
    if image.has_transparency_data:
        layered = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        return _on_ground(_reduced(layered, raster_px))  # reduced first: the two grounds take more memory than it
    if image.mode == "LAB":
        return _from_lab(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _white_is_zero(image: Image.Image) -> bool:
    """By tag 262 of a TIFF, which Pillow heeds for 8 bits and less."""
    return bool(getattr(image, "tag_v2", {}).get(262) == 0)


def _on_ground(image: Image.Image) -> Image.Image:
    """`image` (RGBA) laid on the ground that shows more of it. Colours hidden under full transparency do not count."""
    import numpy as np

    factor = math.ceil(math.sqrt(image.width * image.height / _SMALL_PX))
    small = image.convert("RGBa")  # colour times alpha
    values = np.asarray(small.reduce(factor) if factor > 1 else small, dtype=np.float32)
    on_black = values[..., :3].mean(axis=-1)
    on_white = on_black + (255 - values[..., 3])
    white = float(on_white.std()) >= _HIDDEN * float(on_black.std())
    ground = Image.new("RGB", image.size, "white" if white else "black")
    ground.paste(image, mask=image.getchannel("A"))
    return ground


def _eight_bits(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Grey values of 16 or 32 bits, integer or float, scaled to 0..255."""
    import numpy as np

    numbers = np.nan_to_num(values.astype(np.float32), posinf=0.0, neginf=0.0)
    low, high = float(numbers.min()), float(numbers.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        full = 1.0
    elif low >= 0 and high <= 255:
        full = 255.0 if values.dtype.itemsize > 2 else 65535.0
    elif low >= 0 and high <= 65535:
        full = 65535.0
    else:
        numbers -= low
        full = high - low
    if values.dtype.itemsize == 2 and 0 < high < 4096:
        full = high  # 12-bit and darker scans in 16-bit files would come out black
    return (numbers * (255.0 / full) + 0.5).astype(np.uint8)


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    lab, rgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    turned = ImageCms.profileToProfile(image, lab, rgb, outputMode="RGB")
    assert turned is not None
    return turned


def _reduced(image: Image.Image, raster_px: int) -> Image.Image:
    if (pixels := image.width * image.height) <= raster_px:
        return image
    scale = math.sqrt(raster_px / pixels)
    size = max(1, math.floor(image.width * scale)), max(1, math.floor(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
