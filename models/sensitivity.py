"""What each matrix loses in 8 bits and what was done about it: `sensitivity.json`, from `export --calibrate`."""

from __future__ import annotations

from dataclasses import dataclass

from .bundle import COPY_AGAIN, SENSITIVITY_FILE, Bundle
from .errors import BundleError
from .records import EXPORT_AGAIN, Record, parse_json

SENSITIVITY_VERSION = 1


@dataclass(frozen=True, slots=True)
class MatrixLoss(Record):
    """One matrix. `errors` has for each scheme that could serve it how far its output is off, over the output's length.

    They were measured on `rows` sampled inputs. fp32 is the measure, so it has no entry. `first` is the scheme that the
    matrix has by default, `scheme` the one it has in the bundle.
    """

    name: str
    rows: int
    errors: tuple[tuple[str, float], ...]
    first: str
    scheme: str

    @property
    def first_error(self) -> float:
        """By which the ranking goes."""
        return self.error(self.first)

    def error(self, scheme: str) -> float:
        """Relative error of the output under that scheme."""
        return dict(self.errors).get(scheme, 0.0)


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """One comparison with the reference: the thresholds it missed, and the matrices that were promoted for it."""

    missed: tuple[str, ...]
    promoted: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sensitivity(Record):
    """The ranking, the most sensitive matrix first, and the comparisons in their order."""

    sensitivity_version: int
    pages: int
    requests: int
    matrices: tuple[MatrixLoss, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def promoted(self) -> tuple[MatrixLoss, ...]:
        """Those that are not stored as they would be by default."""
        return tuple(matrix for matrix in self.matrices if matrix.scheme != matrix.first)


def read_sensitivity(bundle: Bundle) -> Sensitivity | None:
    """None when the bundle was exported without. BundleError when the file is damaged or of another version."""
    if all(entry.path != SENSITIVITY_FILE for entry in bundle.files):
        return None
    path = bundle.path / SENSITIVITY_FILE
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: expected JSON, found {error}", hint=COPY_AGAIN) from error
    version = value.get("sensitivity_version") if isinstance(value, dict) else None
    if version != SENSITIVITY_VERSION:
        raise BundleError(
            f"{path}: expected sensitivity_version {SENSITIVITY_VERSION}, found {version!r}", hint=EXPORT_AGAIN
        )
    return Sensitivity.from_json(value, str(path))
