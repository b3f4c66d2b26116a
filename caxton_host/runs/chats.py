"""Conversations with a language model, read off the log of a run that chatted."""

from __future__ import annotations

from ..core.calls import JSON
from ..core.log.events import ToolCompleted, ToolInvoked
from .recording import Recording


def conversation(recording: Recording, model: str) -> dict[str, JSON] | None:
    """
    Return the last conversation of a run, for its variable ``conversation``.

    Args:
        recording: The run.

        model: The exposed name of the model.

    Returns:
        ``{run, messages, answer}``: what the model was sent last, and what it
        answered: ``{message, data}``. ``None``: nothing of that is kept.
    """
    asked: dict[int, JSON] = {}
    found: dict[str, JSON] | None = None
    for event in (recorded.event for recorded in recording.history):
        if isinstance(event, ToolInvoked) and event.name == model:
            asked[event.call] = (event.params or {}).get("messages")
        elif isinstance(event, ToolCompleted) and event.call in asked:
            messages = asked[event.call]
            lacks = event.is_error or event.cut or event.withheld
            answer: JSON = {"message": event.message, "data": event.data}
            found = {"run": recording.run_id, "messages": messages, "answer": answer}
            if lacks or not isinstance(messages, list):
                found = None
    return found
