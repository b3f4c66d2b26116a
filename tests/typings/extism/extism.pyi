from collections.abc import Sequence

class CompiledPlugin:
    def __init__(
        self,
        plugin: dict[str, Sequence[dict[str, bytes]]],
        wasi: bool = ...,
        functions: Sequence[object] | None = ...,
    ) -> None: ...

class Plugin:
    def __init__(self, plugin: CompiledPlugin) -> None: ...
    def call(self, function_name: str, data: bytes) -> bytes: ...
