"""The ``approve`` table of a rule: what it wants of people first."""

from __future__ import annotations

from ..core.grants.approvals import Approve
from ..core.names import is_server_name
from . import fields as f
from .schema import STRING, array, shaped
from .source import At

_PARAMS = "params"


def approve(params: f.Reader) -> f.Reader:
    """
    Return the reader of the table.

    Args:
        params: Reads conditions on parameters, as those of a deny rule: what cannot
            be judged has to be approved.
    """

    @shaped({"type": "object"})
    def when(value: object, at: At) -> object:
        named: dict[str, object] = {}
        for key, item in f.table(value, at, "{ params.NAME = { ... } }").items():
            first, _, name = key.partition(".")
            if first != _PARAMS:
                raise at.key(key).error(
                    "is no parameter", fix="write when = { params.NAME = { min = 10 } }"
                )
            named.update({name: item} if name else f.table(item, at.key(key)))
        return params(named, at)

    fields: f.Fields = {
        "by": ("by", _roles),
        "within": ("within", f.duration),
        # Silence is never a yes, so there is nothing else to say.
        "otherwise": ("", f.choice("deny")),
        "when": ("when", when),
    }
    return f.tables(fields, Approve)


@shaped(STRING)
def _role(value: object, at: At) -> str:
    name = f.text(value, at)
    if not is_server_name(name):
        raise at.error(
            "is no name for a role",
            fix="use letters, digits, '-', '.' and single '_'; at most 64",
        )
    return name


@shaped(array(STRING))
def _roles(value: object, at: At) -> tuple[str, ...]:
    roles: tuple[str, ...] = f.listed(_role)(value, at)
    if not roles:
        raise at.error(
            "names nobody", fix='write by = ["ops"], or leave it out for anybody'
        )
    return roles
