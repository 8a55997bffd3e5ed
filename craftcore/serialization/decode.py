"""Values of the user's own types out of JSON text, as annotations say. `encode.py` makes the text."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from craftcore.errors import InvalidInput
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.encode import SHOWN, describe, describe_error, options_of
from craftcore.serialization.pydantic_adapter import get_adapter
from craftcore.serialization.type_descriptions import describe_type

_UNFIT = re.compile(r"(.*) - at (`key` in )?`\$([^`]*)`", re.DOTALL)


def decode(text: str, type_: Any = Any, where: str = "value") -> Any:
    """Return the value of a text, as that type, which `readable_type` has returned or msgspec reads.

    Raises InvalidInput with the path to what does not fit.
    """
    try:
        if type_ is not Any:
            describe_type(type_)
        return msgspec.json.decode(text, type=type_, dec_hook=decode_custom)
    except msgspec.MsgspecError as error:
        message = describe(str, error)
        if unfit := _UNFIT.fullmatch(message):
            message, key, path = unfit.groups()
            where = f"a key of {where}{path}" if key else where + path
        raise InvalidInput(f"{where}: {message:.{SHOWN}}") from error
    except BaseException as error:  # a type of the user's checks itself, and may raise anything
        raise InvalidInput(f"{where}: {describe_error(error)}") from error


def decode_custom(kind: Any, value: Any) -> Any:
    """Return what msgspec asks for types that it does not know: a pydantic model makes itself, out of names or aliases.

    It is given JSON again where it can read it: a strict model takes the text of a moment from nothing else.
    """
    if hasattr(kind, "model_validate"):
        names = {"by_alias": True, "by_name": True} if "by_name" in options_of(kind, "model_validate") else {}
        if hasattr(kind, "model_validate_json"):
            return kind.model_validate_json(canonicalize(value), **names)
        return kind.model_validate(value, **names)
    try:
        adapter = get_adapter(kind)
    except TypeError:
        return value  # msgspec refuses it, if it is not of that type
    return adapter.read(canonicalize(value))
