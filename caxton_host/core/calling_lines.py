"""
The lines of a program that make its calls, as the program itself tells them.

A watched program is the same program behind a few statements, which have the runtime
write a line to the log before each call. They are no barrier and no proof: a program
can write such lines itself, and what it tells is labelled as its own account.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from .programs import Program

#: Ends of lines that not everybody counts alike.
_ODD = re.compile(rb"\r(?!\n)|\xe2\x80[\xa8\xa9]")
_LINE = rb"(?:null|[0-9]{1,7})"
#: The lines of one call, or of each call of a batch; ``null``: not known.
_TOLD = re.compile(rb"\[%b(?:, ?%b){0,63}\]" % (_LINE, _LINE))
_NUMBER = re.compile(_LINE)

# A traceback of the program must not show these statements: their file has a name
# that the runtime hides, and `run` is a function of the runtime. A call that waits for
# others is sent by the event loop, so its line is taken when it begins to wait: from
# the frames of its task, or else from where the coroutine of the task was made.
_PYTHON = r"""
import asyncio, json, sys, types
import caxton_runtime.main as runtime
from caxton_agent import _bridge, _loop

NAME, SOURCE, MARK = $GIVEN
Calls, wire = _loop.Calls, _bridge.host()
add, take, log, sent = Calls.add, Calls._take, wire.log, []
in_loop, in_batch = asyncio.BaseEventLoop._run_once.__code__, Calls.send.__code__

class Params(str):
    pass

def line():
    frame = sys._getframe(1)
    while frame and frame.f_code is not in_loop:
        if frame.f_code.co_filename == NAME:
            return frame.f_lineno
        frame = frame.f_back
    task = asyncio.current_task() if frame else None
    made = getattr(task and task.get_coro(), "cr_origin", None) or ()
    return next((at for file, at, _ in made if file == NAME), None)

def watched_add(calls, loop, name, params):
    params = Params(params)
    params.line = line()
    return add(calls, loop, name, params)

def watched_take(calls):
    batch = take(calls)
    sent[:] = [params.line for _, _, params in batch]
    return batch

def watched(call):
    def watched_call(*given):
        is_sent = sys._getframe(1).f_code is in_batch
        log("debug", MARK + json.dumps(sent if is_sent else [line()]))
        return call(*map(str, given))
    return watched_call

Calls.add, Calls._take = watched_add, watched_take
wire.mcp_call, wire.mcp_call_many = watched(wire.mcp_call), watched(wire.mcp_call_many)
sys.set_coroutine_origin_tracking_depth(16)
sys.monitoring.free_tool_id(runtime._TOOL)
execute = runtime._execute
run = types.FunctionType(execute.__code__, vars(runtime), "run", (NAME, SOURCE))
run.__module__ = "__main__"
"""
_HIDDEN = "<frozen importlib: calling lines>"

# It stands on the first line of the program, so that all keep their numbers. What a
# module exports cannot be replaced, so this watches what the runtime uses for a call:
# the queue of those that wait, which the first one reveals, and the check of a name.
_JAVASCRIPT = r"""
(() => {
  const name = $NAME, say = log.debug, { stringify } = JSON, lines = new WeakMap();
  const { push, splice } = Array.prototype, { toWellFormed } = String.prototype;
  let telling = false;
  function $MARK_stack() {
    const before = Error.stackTraceLimit;
    Error.stackTraceLimit = 64;
    const { stack } = new Error();
    Error.stackTraceLimit = before;
    return String(stack).split("\n").filter((one) => !one.includes("$MARK"));
  }
  function $MARK_line(stack) {
    for (const one of stack) {
      const [, file, row] = one.match(/^ *at (?:.*? \()?(.+?):(\d+):\d+\)?$/) ?? [];
      if (file === name) return +row;
    }
    return null;
  }
  function $MARK_tell(found) {
    telling = true;
    say("$MARK" + stringify(found));
    telling = false;
  }
  String.prototype.toWellFormed = function $MARK_text() {
    const stack = telling ? [] : $MARK_stack();
    if (stack.some((one) => /^ *at pack \(caxton:/.test(one)))
      $MARK_tell([$MARK_line(stack)]);
    return toWellFormed.call(this);
  };
  const isCall = (one) => typeof one === "object" && one && "packed" in one
    && $MARK_stack().some((at) => at.includes("(caxton:events:"));
  Array.prototype.push = function $MARK_push(...given) {
    if (given.length !== 1 || !isCall(given[0])) return push.apply(this, given);
    Array.prototype.push = push;
    this.push = function $MARK_wait(one) {
      lines.set(one, $MARK_line($MARK_stack()));
      return push.call(this, one);
    };
    this.splice = function $MARK_send(...given) {
      const sent = splice.apply(this, given);
      $MARK_tell(sent.map((one) => lines.get(one) ?? null));
      return sent;
    };
    return this.push(given[0]);
  };
})();
"""


def _python(program: Program, mark: str) -> Program:
    given = repr((program.name, program.source.decode(), mark))
    text = _PYTHON.replace("$GIVEN", given)
    return replace(program, name=_HIDDEN, source=text.encode())


def _javascript(program: Program, mark: str) -> Program:
    before = _JAVASCRIPT.replace("$NAME", json.dumps(program.name))
    before = before.replace("$MARK", mark).replace("\n", " ")
    text = program.source.decode()
    if text.startswith("#!"):
        text = f"//{text}"
    return replace(program, source=(before + text).encode())


_WATCHED = MappingProxyType({"python": _python, "javascript": _javascript})


@dataclass(slots=True, kw_only=True)
class Account:
    """
    What a watched program tells of its calls.

    Attributes:
        watched: Does what the program does, and tells the line of each call before it.

        mark: How the log lines begin that tell it.

        last: The number of the last line of the program.

        lines: Those that are known, by number of the call.
    """

    watched: Program
    mark: str
    last: int
    lines: dict[int, int] = field(default_factory=dict[int, int], init=False)
    _told: list[bytes] = field(default_factory=list[bytes], init=False)

    @classmethod
    def of(cls, program: Program, mark: str) -> Account | None:
        """
        Return the account that a program is to give; ``None``: its lines are unclear.

        Args:
            program: What is watched.

            mark: A name in all languages, which no log line of its own begins with.
        """
        if _ODD.search(program.source):
            return None
        watched = _WATCHED[program.runtime](program, mark)
        return cls(watched=watched, mark=mark, last=program.source.count(b"\n") + 1)

    def hears(self, text: bytes) -> bool:
        """Take a log line; return whether it tells lines instead of being logged."""
        if not text.startswith(self.mark.encode()):
            return False
        told = _TOLD.fullmatch(text, len(self.mark))
        self._told = _NUMBER.findall(told[0]) if told else []
        return True

    def called(self, calls: Sequence[int]) -> None:
        """Take the numbers of calls that were made together."""
        told, self._told = self._told, []
        if len(told) == 1:
            told *= len(calls)
        if len(told) == len(calls):
            for call, line in zip(calls, told, strict=True):
                if line != b"null" and 0 < int(line) <= self.last:
                    self.lines[call] = int(line)
