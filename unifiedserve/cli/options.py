"""Make command-line options from a msgspec struct's fields, so that each is defined once."""

import inspect
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Optional, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import typer

from unifiedserve.config.validation import field_and_reason
from unifiedserve.errors import ConfigError

S = TypeVar("S", bound=msgspec.Struct)


def signature_of(struct: type[msgspec.Struct], positional: Collection[str] = ()) -> inspect.Signature:
    """Make a signature for Typer: an option (or an argument, if `positional`) for each field of `struct`.

    The field's `Meta(description=…)` is its help; a tuple becomes an option that may be repeated. A field that is a
    struct itself is a group of them, which has a panel of its own in the help.
    """
    panels = {
        option.name: field.name.capitalize()
        for field in msgspec.structs.fields(struct)
        if _is_group(field)
        for option, _ in options_of(field.type)
    }
    parameters = [
        _parameter(field, hint, field.name in positional, panels.get(field.name)) for field, hint in options_of(struct)
    ]
    return inspect.Signature(parameters)


def options_of(struct: type[msgspec.Struct]) -> Iterator[tuple[msgspec.structs.FieldInfo, Any]]:
    """Yield each field of `struct` that is an option, with its annotation."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if _is_group(field):
            yield from options_of(field.type)
        else:
            yield field, hints[field.name]


def from_options(struct: type[S], given: dict[str, Any]) -> S:
    """Make the struct; raises ConfigError naming the option that is out of range."""
    groups = {field.name: field.type for field in msgspec.structs.fields(struct) if _is_group(field)}
    if groups:
        return struct(**{name: from_options(group, _own(group, given)) for name, group in groups.items()})
    try:
        return msgspec.convert(given, struct)
    except msgspec.ValidationError as error:
        name, reason = field_and_reason(error)
        raise ConfigError(f"--{name.replace('_', '-')}: {reason}") from error


def _is_group(field: msgspec.structs.FieldInfo) -> bool:
    return isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)


def _own(group: type[msgspec.Struct], given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in group.__struct_fields__}


def _plain(kind: Any) -> Any:
    """Return a type without what only msgspec reads: the bounds of an optional value."""
    parts = [get_args(part)[0] if get_origin(part) is Annotated else part for part in get_args(kind)]
    return Optional[parts[0]] if len(parts) == 2 and parts[1] is type(None) else kind  # noqa: UP045


def _parameter(
    field: msgspec.structs.FieldInfo, hint: Any, positional: bool, panel: str | None = None
) -> inspect.Parameter:
    bounded, meta = get_args(hint)
    kind = _plain(bounded)
    default: Any = field.default
    if get_origin(kind) is tuple:
        kind, default = list[get_args(kind)[0]], list(default)  # type: ignore[misc]
    show_default = default not in ("", [])
    declare = typer.Argument if positional else typer.Option
    names = ["--" + field.name.replace("_", "-")] if kind is bool else []  # no --no-… twin
    panel = None if positional else panel
    how = declare(*names, help=meta.description, show_default=show_default, rich_help_panel=panel)
    declared = Annotated[kind, how]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=declared)
