"""
Mutants: programs and grants that differ from the original in one place.

The operators for programs are those that mutmut documents for Python: numbers, texts,
operators, comparisons, boolean words, ``not``, ``break`` and ``continue``, assigned
values, arguments. Annotations and texts that document are left alone. A grant has four
kinds of mutants: a bound moved, a rule dropped, a glob widened, an order swapped.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

#: What was changed, and the changed thing.
Mutant: TypeAlias = tuple[str, str]

_SWAPS: Mapping[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Div,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}
_NONE = ast.Constant(None)
_ORDERS = {"only_after", "unless_after"}


def of_program(source: str) -> Iterator[Mutant]:
    """Yield each mutant of a program in Python: what was changed, and the source."""
    tree = ast.parse(source)
    for path, node in _places(tree, ()):
        for what, new in _changed(node):
            changed = copy.deepcopy(tree)
            _put(changed, path, new)
            line = getattr(node, "lineno", None)
            where = f"line {line}: " if line else ""
            text = ast.unparse(ast.fix_missing_locations(changed))
            yield f"{where}{what}", text


def _places(
    node: ast.AST, path: tuple[tuple[str, int | None], ...]
) -> Iterator[tuple[tuple[tuple[str, int | None], ...], ast.AST]]:
    """Yield the nodes that may be changed, and how each is reached."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        several = isinstance(value, list)
        for at, child in enumerate(value if several else [value]):
            if not isinstance(child, ast.AST) or _is_text(node, child):
                continue
            way = (*path, (name, at if several else None))
            yield way, child
            yield from _places(child, way)


def _is_text(above: ast.AST, node: ast.AST) -> bool:
    """Return whether a node only documents, or is a type."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.ImportFrom | ast.Import) or (
        isinstance(above, ast.ClassDef) and isinstance(node, ast.AnnAssign)
    )


def _changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    swap = _SWAPS.get(type(node))
    if swap is not None:
        yield f"{type(node).__name__} to {swap.__name__}", swap()
    elif isinstance(node, ast.Constant):
        yield from _of_value(node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not removed", node.operand
    elif isinstance(node, ast.Assign) and not _is_none(node.value):
        new = copy.deepcopy(node)
        new.value = _NONE
        yield "None assigned", new
    elif isinstance(node, ast.Call):
        yield from _of_call(node)


def _of_value(value: object) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(value, bool):
        yield f"{value} to {not value}", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield f"{value} to {value + 1}", ast.Constant(value + 1)
    elif isinstance(value, str):
        yield f"{value!r} marked", ast.Constant(f"XX{value}XX")


def _of_call(call: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = ast.unparse(call.func)
    for at, value in enumerate(call.args):
        if not isinstance(value, ast.Starred) and not _is_none(value):
            new = copy.deepcopy(call)
            new.args[at] = _NONE
            yield f"argument {at + 1} of {name} is None", new
        if len(call.args) > 1:
            new = copy.deepcopy(call)
            del new.args[at]
            yield f"argument {at + 1} of {name} removed", new
    for at, keyword in enumerate(call.keywords):
        new = copy.deepcopy(call)
        del new.keywords[at]
        yield f"argument {keyword.arg} of {name} removed", new


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _put(tree: ast.AST, path: tuple[tuple[str, int | None], ...], new: ast.AST) -> None:
    node = tree
    for name, at in path[:-1]:
        value = getattr(node, name)
        node = value if at is None else value[at]
    name, at = path[-1]
    if at is None:
        setattr(node, name, new)
    else:
        getattr(node, name)[at] = new


def of_grant(
    grant: Mapping[str, Any], tools: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """
    Yield kind, what was changed, and the changed table, of an agent's rules.

    Args:
        grant: Its tables ``allow`` and ``deny``.

        tools: Those of each server: a glob that is wider but matches no more is none.
    """
    for verb in ("allow", "deny"):
        rules: list[dict[str, Any]] = grant.get(verb, [])
        for at, rule in enumerate(rules):
            name = f"{verb}[{at + 1}]"
            yield "dropped", name, _with(grant, verb, at, None)
            for kind, what, changed in _of_rule(rule):
                if kind == "widened" and _same(rule, changed, tools):
                    continue
                yield kind, f"{name}: {what}", _with(grant, verb, at, changed)


def _same(
    rule: Mapping[str, Any],
    changed: Mapping[str, Any],
    tools: Mapping[str, Sequence[str]],
) -> bool:
    """Return whether two rules differ in globs that match the same tools."""

    def matched(one: Mapping[str, Any]) -> list[str]:
        every = [f"{server}/{tool}" for server in tools for tool in tools[server]]
        return [t for t in every if any(fnmatchcase(t, glob) for glob in one["tools"])]

    others = {key: it for key, it in rule.items() if key != "tools"}
    return others == {k: v for k, v in changed.items() if k != "tools"} and matched(
        rule
    ) == matched(changed)


def _with(
    grant: Mapping[str, Any], verb: str, at: int, rule: dict[str, Any] | None
) -> dict[str, Any]:
    new = copy.deepcopy(dict(grant))
    new[verb][at : at + 1] = [] if rule is None else [rule]
    return new


def _of_rule(rule: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, value in _leaves(rule, ()):
        where = ".".join(map(str, path))
        if path[0] not in _ORDERS:
            for kind, new in _moved(value):
                yield kind, f"{where} {value} to {new}", _set(rule, path, new)
    for key in _ORDERS & rule.keys():
        (other,) = _ORDERS - {key}
        swapped = {(other if one == key else one): it for one, it in rule.items()}
        yield "order", f"{key} to {other}", swapped
        yield "order", f"{key} removed", {k: v for k, v in rule.items() if k != key}


def _moved(value: object) -> Iterator[tuple[str, int | str]]:
    """Yield kind and value of what is near a bound, or wider than a glob."""
    if isinstance(value, int):
        yield from (("bound", moved) for moved in (value - 1, value + 1, value * 2))
    elif isinstance(value, str):
        number, slash, rest = value.partition("/")
        if number.isdigit():
            for moved in (int(number) - 1, int(number) + 1, int(number) * 2):
                if moved > 0:
                    yield "bound", f"{moved}{slash}{rest}"
        else:
            yield from (("widened", wide) for wide in _wider(value))


def _wider(glob: str) -> Iterator[str]:
    """Yield globs that match all that *glob* does, and more."""
    server, slash, tool = glob.rpartition("/")
    if slash and tool != "*":
        yield f"{server}/*"
        stem = tool.partition("_")[0].partition(".")[0].rstrip("*")
        if stem and f"{stem}*" != tool:
            yield f"{server}/{stem}*"


def _leaves(
    value: Any,  # noqa: ANN401 -- of TOML
    path: tuple[str | int, ...],
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, (*path, key))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _leaves(one, (*path, at))
    elif path:
        yield path, value


def _set(
    rule: Mapping[str, Any],
    path: tuple[str | int, ...],
    value: Any,  # noqa: ANN401 -- the same
) -> dict[str, Any]:
    new = copy.deepcopy(dict(rule))
    node: Any = new
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return new
