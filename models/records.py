"""Frozen dataclasses to JSON and back, strictly: every field present, no field unknown, every type as declared.

Kinds of field: int, float, str, Literal of strings, another record, `tuple[X, ...]` (a JSON list), `tuple[X, Y]`
(a list of that length), and `tuple[tuple[str, X], ...]` (a JSON object, its order kept).
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import BundleError

R = TypeVar("R", bound="Record")


class Record:
    """Base of the dataclasses that travel in a bundle. `__post_init__` may raise ValueError for impossible values."""

    __slots__ = ()

    @classmethod
    def from_json(cls: type[R], value: object, where: str | None = None) -> R:
        """Build from parsed JSON. BundleError names the field, the expected kind and what was found."""
        where = where or cls.__name__
        hints = get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        if missing := [name for name in names if name not in value]:
            raise BundleError(f"{where}: expected the field {missing[0]!r}, found none", hint=EXPORT_AGAIN)
        if unknown := [name for name in value if name not in names]:
            raise BundleError(
                f"{where}: expected the fields {', '.join(names)}, found also {unknown[0]!r}", hint=EXPORT_AGAIN
            )
        found = {name: _read(hints[name], value[name], f"{where}.{name}") for name in names}
        try:
            return cls(**found)
        except ValueError as error:
            raise BundleError(f"{where}: {error}", hint=EXPORT_AGAIN) from error

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`: dicts, lists, strings and numbers, in the order the fields are declared."""
        hints = get_type_hints(type(self))
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: _write(hints[field.name], getattr(self, field.name)) for field in fields}


EXPORT_AGAIN = "export the bundle again, or use the version of mineru-edge that wrote it"


def parse_json(text: str) -> object:
    """`json.loads` that also refuses a name given twice and the non-JSON numbers NaN and Infinity (ValueError)."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"the name {name!r} stands twice")
            found[name] = value
        return found

    def refuse(constant: str) -> object:
        raise ValueError(f"{constant} is not JSON")

    value: object = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    return value


def _read(hint: Any, value: object, where: str) -> object:
    if hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise _wrong(where, "a whole number", value)
    if hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        raise _wrong(where, "a number", value)
    if hint is str:
        if isinstance(value, str):
            return value
        raise _wrong(where, "a string", value)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise _wrong(where, " or ".join(map(repr, get_args(hint))), value)
    if get_origin(hint) is tuple:
        return _read_tuple(hint, value, where)
    assert issubclass(hint, Record), f"{where}: no rule for {hint}"
    return hint.from_json(value, where)


def _read_tuple(hint: Any, value: object, where: str) -> tuple[object, ...]:
    if (item := _named_item(hint)) is not None:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return tuple((name, _read(item, entry, f"{where}.{name}")) for name, entry in value.items())
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)
    kinds = _kinds(hint, len(value))
    if len(kinds) != len(value):
        raise _wrong(where, f"a list of {len(kinds)}", value)
    return tuple(
        _read(kind, entry, f"{where}[{index}]") for index, (kind, entry) in enumerate(zip(kinds, value, strict=True))
    )


def _write(hint: Any, value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if not isinstance(value, tuple):
        return value
    if (item := _named_item(hint)) is not None:
        return {name: _write(item, entry) for name, entry in value}
    kinds = _kinds(hint, len(value))
    return [_write(kind, entry) for kind, entry in zip(kinds, value, strict=True)]


def _kinds(hint: Any, count: int) -> tuple[Any, ...]:
    """The kind of each of `count` items of a tuple hint."""
    kinds = get_args(hint)
    return (kinds[0],) * count if kinds[-1] is Ellipsis else kinds


def _named_item(hint: Any) -> Any:
    """X of `tuple[tuple[str, X], ...]`, else None."""
    first, *rest = get_args(hint)
    pair = get_args(first) if get_origin(first) is tuple and rest == [Ellipsis] else ()
    return pair[1] if len(pair) == 2 and pair[0] is str else None


def _wrong(where: str, expected: str, value: object) -> BundleError:
    shown = json.dumps(value)
    return BundleError(
        f"{where}: expected {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}", hint=EXPORT_AGAIN
    )
