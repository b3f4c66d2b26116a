from typing import Protocol

class WitWorld(Protocol):
    def run(self) -> None: ...
