"""What is changed in a source file: by operators that mutmut and cosmic-ray have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: *was* became *now*, in a function or ("") outside of all."""

    function: str
    line: int
    was: str
    now: str
    source: str

    @property
    def changed(self) -> str:
        """The first line that it changes, as it is then."""
        return self.source.splitlines()[self.line - 1].strip()

    def __str__(self) -> str:
        """Return the change, and `changed` in a second line."""
        was, now = (" ".join(text.split()) for text in (self.was, self.now))
        return f"{self.line} {self.function}: {was} -> {now}\n    {self.changed}"


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a source file, in its order."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    for function, statement in _scopes(ast.parse(source).body):
        for node, now in _changes(statement):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            changed = (data[:begin] + now.encode() + data[end:]).decode()
            was = data[begin:end].decode()
            found.append(Mutant(function, node.lineno, was, now, changed))
    return found


_Change: TypeAlias = tuple[ast.expr | ast.stmt, str]


def _scopes(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield each statement with its function or method; ``""``: one of the module."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((f"{inside}{node.name}", one) for one in node.body)
        elif isinstance(node, ast.ClassDef):
            yield from _scopes(node.body, f"{inside}{node.name}.")
        elif not inside:
            yield "", node


def _changes(node: ast.AST) -> Iterator[_Change]:
    """Yield what may be written for a node and for what it holds."""
    if isinstance(node, ast.JoinedStr) or _is_left_alone(node):
        return  # what people read; and positions in it are those of the whole
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, f"(not {_text(node.test)})"
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "decorator_list", "returns"}:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST):
                    yield from _changes(one)


def _is_left_alone(node: ast.AST) -> bool:
    """Return whether it is a docstring, ``del argument``, or ``strict=True`` of zip."""
    match node:
        case ast.Expr(ast.Constant()) | ast.Delete([ast.Name()]):
            return True
        case ast.keyword("strict"):
            return True
        case _:
            return False


def _of_expression(node: ast.expr) -> Iterator[_Change]:
    match node:
        case ast.Compare(left, ops, comparators):
            for at, op in enumerate(ops):
                new = [*ops[:at], _COMPARED[type(op)](), *ops[at + 1 :]]
                yield node, _text(ast.Compare(left, new, comparators))
        case ast.BoolOp(op, values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, _text(ast.BoolOp(other, values))
        case ast.BinOp(left, op, right) if type(op) in _COMPUTED:
            yield node, _text(ast.BinOp(left, _COMPUTED[type(op)](), right))
        case ast.UnaryOp(ast.Not(), operand):
            yield node, _text(operand)
        case ast.Constant(bool() as value):
            yield node, str(not value)
        case ast.Constant(int() as value):
            yield node, str(value + 1)
        case _:
            pass


def _of_statement(node: ast.stmt) -> Iterator[_Change]:
    match node:
        case ast.Return(ast.Constant(str() as value)):
            yield node, f"return {value + 'XX'!r}"
        case ast.Return(value) if value and not isinstance(value, ast.Constant):
            yield node, "return None"
        case (
            ast.Expr(ast.Call() | ast.Await())
            | ast.Assign([ast.Attribute() | ast.Subscript()])
            | (ast.Raise() | ast.AugAssign() | ast.Delete())
            | (ast.Continue() | ast.Break())
        ):
            yield node, "pass"
        case _:
            pass


def _text(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"
