from collections.abc import Sequence
from typing import Any

def get_ocsf_schema(version: str) -> dict[str, Any]: ...

class OcsfJsonSchemaEmbedded:
    def __init__(self, schema: dict[str, Any]) -> None: ...
    def get_class_schema(
        self, class_name: str, profiles: Sequence[str]
    ) -> dict[str, Any]: ...
