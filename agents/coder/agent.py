"""
Have a language model solve a task with programs that it writes, runs and repairs.

Input: {"task": text}. Output: the answer of the model, and how many programs it ran.
The model is the tool "chat", and a program runs by the tool "run_code" of the server
"sandbox". Each error of a program is told to the model, which then writes another one.
"""

from __future__ import annotations

from caxton_agent import JSON, converse, input

RULES = (
    "Solve the task with Python programs. Run each with run_code; its description says "
    "which tools a program has. If a program fails, read the error and repair it. "
    "Then answer in one sentence, from what the programs returned."
)
ROUNDS = 8


def run() -> dict[str, JSON]:
    messages: list[JSON] = [
        {"role": "system", "content": RULES},
        {"role": "user", "content": input()["task"]},
    ]
    answer = converse(messages, rounds=ROUNDS)["content"]
    programs = sum(message["role"] == "tool" for message in messages)
    return {"answer": answer, "programs": programs}
