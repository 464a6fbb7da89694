"""What the journal has of a tool's run: the outcome as it is recorded, and what a model is told where there is none."""

from __future__ import annotations

from typing import Any

from threadline.core import jsontext
from threadline.core.events import ToolError, ToolResult
from threadline.core.turns import ToolRun


def encode_result(result: ToolResult | ToolError) -> dict[str, Any]:
    return {"error": result.error} if isinstance(result, ToolError) else {"output": result.output}


def recorded_result(run: ToolRun) -> ToolResult | ToolError | None:
    """The result of a run that ended, from its record."""
    if run.output_json is None:
        return None
    record = jsontext.parse(run.output_json, "recorded tool result")
    if "error" in record:
        return ToolError(run.call_id, record["error"])
    return ToolResult(run.call_id, record["output"])


def describe_unknown_outcome(run: ToolRun) -> str:
    return (
        f"{run.name} was started earlier in this turn and interrupted; it is not known whether it took effect. "
        "It is not safe to repeat, so it was not run again."
    )
