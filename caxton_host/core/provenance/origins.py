"""
The grammar of sources: where a value has to come from.

    input                   context.KEY                 SERVER/TOOL$.path
    input$.path             context.KEY$.path           own:SERVER/TOOL$.path
    trusted                 program
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias

from ...errors import ConditionError, UsageError
from ..calls import JSON
from ..names import is_server_name, is_tool_name
from ..text.jsonpath import JsonPath, is_everything

Kind: TypeAlias = Literal["input", "context", "answer", "own", "trusted"]

_MOST = 32
_OWN = "own:"
_CONTEXT = "context."
_KNOWN = (
    "write input, input$.path, context.KEY, SERVER/TOOL$.path, "
    "own:SERVER/TOOL$.path or trusted"
)
_Keys: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """
    One source.

    >>> Origin.parse("crm/find$.people[*].email").tool
    ('crm', 'find')
    >>> Origin.parse("context.user").text
    'context.user'

    Attributes:
        kind: ``answer``: a tool that only reads; ``own``: the answer to a call of this
            run that created something; ``trusted``: what the agent's table ``trusted``
            lists, which `Wanted.trusting` fills in.

        name: The key of the context, or ``SERVER/TOOL``.

        path: The places in the value; ``None``: all of it.
    """

    kind: Kind
    name: str = ""
    path: JsonPath | None = None

    @classmethod
    def parse(cls, text: str) -> Origin:
        """
        Parse a source.

        Raises:
            UsageError: It is invalid.
        """
        head, dollar, rest = text.partition("$")
        path = _path(dollar + rest) if dollar else None
        if head == "input":
            return cls("input", path=path)
        if text == "trusted":
            return cls("trusted")
        if head == "program":
            _refuse(
                "is not a source: the host does not know which texts of it are read"
            )
        if head.startswith(_CONTEXT) and head != _CONTEXT:
            return cls("context", head.removeprefix(_CONTEXT), path)
        own = head.startswith(_OWN)
        name = head.removeprefix(_OWN)
        server, slash, tool = name.partition("/")
        if not (slash and is_server_name(server) and is_tool_name(tool)):
            _refuse("is not a source", _KNOWN)
        if path is None or not path.steps or is_everything(path):
            _refuse(
                "names a whole answer", f"name one place in it: {head}$.items[*].id"
            )
        return cls("own" if own else "answer", name, path)

    @property
    def text(self) -> str:
        """The source as written."""
        head = {"context": _CONTEXT, "own": _OWN}.get(self.kind, "") + self.name
        return (head or self.kind) + (self.path.text if self.path else "")

    @property
    def tool(self) -> tuple[str, str] | None:
        """The server and the tool whose answers it is, if it is answers."""
        if self.kind not in {"answer", "own"}:
            return None
        server, _, tool = self.name.partition("/")
        return server, tool


def _path(text: str) -> JsonPath:
    path = JsonPath.parse(text)
    if path.text.count("..") > 1:
        # A value could have as many places as there are ways through it.
        _refuse("has '..' twice", "write one of them out")
    return path


def _refuse(problem: str, fix: str = _KNOWN) -> NoReturn:
    raise UsageError(problem, fix=fix)


#: What the documents are named by, if a rule does not say.
_BY_INPUT = (Origin("input"),)


@dataclass(frozen=True, slots=True)
class Mention:
    """
    Documents that the input names.

    Attributes:
        tool: The tool that reads them, as ``SERVER/TOOL``.

        param: Its parameter that names the document.

        by: Where the value of that parameter has to come from.

        path: The places in the answers that count; ``None``: all of them.
    """

    tool: str
    param: str
    by: tuple[Origin, ...] = _BY_INPUT
    path: JsonPath | None = None

    @property
    def text(self) -> str:
        """The documents, as places in them are recorded."""
        return f"mention {self.tool}{self.path.text if self.path else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """
    Where the values of one parameter have to come from.

    Attributes:
        origins: The sources.

        mention: Documents that count as free texts, for this parameter alone.

        links: Only the URLs in the value are judged.
    """

    origins: tuple[Origin, ...]
    mention: Mention | None = None
    links: bool = False

    @classmethod
    def parse(
        cls, sources: JSON, mention: JSON, at: _Keys, *, links: bool = False
    ) -> Wanted:
        """
        Parse ``from`` or ``not_from``, and the ``mention`` beside it.

        Raises:
            ConditionError: One is invalid.
        """
        found = None
        if mention is not None:
            found = _mention(mention, (*at[:-1], "mention"))
        return cls(_origins(sources, at), found, links)

    @property
    def tools(self) -> Iterator[tuple[str, str]]:
        """The tools whose answers it trusts; not those that created something."""
        for origin in self.all_origins:
            if origin.kind == "answer" and origin.tool:
                yield origin.tool
        if self.mention:
            server, _, tool = self.mention.tool.partition("/")
            yield server, tool

    @property
    def own(self) -> Iterator[tuple[str, str]]:
        """The tools whose answers name what the run created."""
        for origin in self.all_origins:
            if origin.kind == "own" and origin.tool:
                yield origin.tool

    @property
    def all_origins(self) -> Iterator[Origin]:
        """All sources, with those of the mention."""
        yield from self.origins
        if self.mention:
            yield from self.mention.by


def _origins(said: JSON, at: _Keys) -> tuple[Origin, ...]:
    if not isinstance(said, list) or not 0 < len(said) <= _MOST:
        raise ConditionError(
            at, "is not a list of sources", fix=f'write 1 to {_MOST}, like ["input"]'
        )
    found: list[Origin] = []
    for number, text in enumerate(said, 1):
        try:
            found.append(Origin.parse(text if isinstance(text, str) else ""))
        except UsageError as exc:
            raise ConditionError((*at, str(number)), str(exc), fix=exc.fix) from None
    if len(set(found)) < len(found):
        raise ConditionError(at, "names a source twice", fix="name it once")
    return tuple(found)


def _mention(said: JSON, at: _Keys) -> Mention:
    known = {"tool", "param", "from", "path"}
    if not isinstance(said, dict) or not {"tool", "param"} <= said.keys() <= known:
        raise ConditionError(
            at,
            "is not a tool and its parameter",
            fix='write mention = { tool = "files/read", param = "path" }',
        )
    tool, param = said["tool"], said["param"]
    server, _, name = tool.partition("/") if isinstance(tool, str) else ("", "", "")
    if not (is_server_name(server) and is_tool_name(name)):
        raise ConditionError(
            (*at, "tool"), "is not a tool", fix="write one tool, as SERVER/TOOL"
        )
    if not isinstance(param, str) or not param:
        raise ConditionError(
            (*at, "param"), "is not a parameter", fix="write the name of one"
        )
    by = _origins(said["from"], (*at, "from")) if "from" in said else _BY_INPUT
    return Mention(f"{server}/{name}", param, by, _places(said, (*at, "path")))


def _places(said: dict[str, JSON], at: _Keys) -> JsonPath | None:
    """Return the path of a mention, if it has one."""
    if "path" not in said:
        return None
    text = said["path"]
    try:
        path = _path(text if isinstance(text, str) else "")
        if not path.steps or is_everything(path):
            _refuse("names a whole answer", "name one place in it: $.items[*].id")
    except UsageError as exc:
        raise ConditionError(at, str(exc), fix=exc.fix) from None
    return path


def trusting(spec: JSON, trusted: Iterable[str]) -> JSON:
    """
    Return conditions as written, with ``trusted`` replaced by what it stands for.

    >>> trusting({"to": {"from": ["trusted", "input"]}}, ["a/b$.c", "input"])
    {'to': {'from': ['a/b$.c', 'input']}}
    """
    if not isinstance(spec, dict):
        return spec
    return {
        key: _filled(item, trusted)
        if key in _SOURCES and isinstance(item, list)
        else trusting(item, trusted)
        for key, item in spec.items()
    }


_SOURCES = frozenset({"from", "not_from"})


def _filled(sources: list[JSON], trusted: Iterable[str]) -> list[JSON]:
    found: dict[str, JSON] = {}
    for source in sources:
        for text in trusted if source == "trusted" else (source,):
            found[str(text)] = text
    return [*found.values()]
