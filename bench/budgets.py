"""The budget: every kind of work that is measured, and what Threadline may need for it on each database.

A ratio is against the reference that a row names: the bare driver doing the least possible for the same durability,
unless the work says otherwise. A value is in the row's own unit. Budgets hold for Threadline's rows alone.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from bench.places import Backend

OURS = "Threadline"


class Budget(NamedTuple):
    of: Literal["ratio", "value"]
    sign: Literal["≤", "≥"]
    limit: float

    def met_by(self, ratio: float | None, value: float) -> bool:
        found = ratio if self.of == "ratio" else value
        if found is None:
            raise ValueError("a budget for a ratio needs a row with a reference")
        # What is printed is what is judged: two decimals.
        found = round(found, 2)
        return found <= self.limit if self.sign == "≤" else found >= self.limit


class Measure(NamedTuple):
    name: str
    sqlite: Budget | None = None
    postgres: Budget | None = None

    def budget(self, backend: Backend) -> Budget | None:
        return self.sqlite if backend == "sqlite" else self.postgres


def _ratio(sign: Literal["≤", "≥"], limit: float) -> Budget:
    return Budget("ratio", sign, limit)


def _value(limit: float) -> Budget:
    return Budget("value", "≤", limit)


def _both(name: str, budget: Budget | None) -> Measure:
    return Measure(name, budget, budget)


APPEND_ALONE = _both("append a turn, alone", _ratio("≤", 1.4))
APPEND_FLAT = _both("append a turn at 100,000 messages, against 100", _ratio("≤", 1.1))
CROWD = Measure("64 tasks to 64 threads: throughput", _ratio("≥", 3.5), _ratio("≥", 0.9))
CROWD_P99 = Measure("64 tasks to 64 threads: slowest of 100", _value(15))
CROWD_ERRORS = _both("64 tasks to 64 threads: errors", _value(0))
PROCESSES = _both("the same across 4 processes: throughput", None)
PROCESSES_ERRORS = _both("the same across 4 processes: errors", _value(0))
ONE_THREAD = Measure("64 tasks to one thread: throughput", _ratio("≥", 4.0))
ONE_THREAD_LOST = _both("64 tasks to one thread: lost, doubled or failed", _value(0))
LAST_TURNS = Measure("last 12 turns", _ratio("≤", 1.2), _ratio("≤", 1.3))
LAST_TURNS_DEEP = _both("last 12 turns at lineage depth 1,000", _ratio("≤", 1.3))
WHOLE = _both("whole thread, typed", _ratio("≤", 1.0))
WHOLE_DECODED = _both("whole thread, typed, every part decoded", None)
BRANCH = _both("branch", _ratio("≤", 1.5))
SAVE = _both("save", _ratio("≤", 1.5))
LOAD = _both("load", _ratio("≤", 1.5))
UNDO = _both("undo", _ratio("≤", 1.5))
COPIED = _both("messages copied by branch, save, load and undo", _value(0))
LIST = _both("list 50 of 10,000 threads", _ratio("≤", 1.5))
SEARCH = _both("search 1,000,000 messages", _value(50))
DISK = Measure("bytes on disk for each byte of payload", _value(1.45), _value(1.1))
MEMORY = _both("memory while streaming 100,000 messages", _value(100))
IMPORT = Measure("import threadline, over bare Python", _value(150))
HELP = Measure("threadline --help", _value(250))
TURN = _both("a whole turn with an instant agent", _ratio("≤", 3.0))
FIRST_EVENT = _both("from the question to the first event", None)
FAN_OUT = _both("events delivered to subscribers", None)
PROMPT = _both("context of a turn at 100,000 messages, against 1,000", _ratio("≤", 1.1))
RECOVERY = _both("a killed turn asked for again, until its answer", None)
RECOVERY_P99 = _both("a killed turn asked for again: slowest of 100", _value(1_000))
RECOVERY_WRONG = _both("killed turns lost, doubled or not answered", _value(0))
MASKING = Measure("masking of text", Budget("value", "≥", 20))
MASKING_MESSAGE = Measure("sealing a message of 2 kB, masked, against unmasked")
CHAT = Measure("threadline chat until its prompt appears", _value(300))
CHAT_MEMORY = Measure("threadline chat at its prompt: memory", None)
TOOL_CALL = Measure("a tool call, over the tool itself", _value(3))
MCP_TOOLS = Measure("a turn with 100 MCP tools, over one without", _value(50))
COMPACTED = Measure("prompt after 500 to 1,000 turns with summaries", _ratio("≤", 1.05))
COMPACTED_LARGEST = Measure("the same: largest prompt, in a window of 8,000 tokens", _value(8_000))
CHANNEL_ACKNOWLEDGED = _both("webhook acknowledged while the agent takes 2 s", None)
CHANNEL_ACKNOWLEDGED_P99 = _both("webhook acknowledged: slowest of 100", _value(100))
CHANNEL_WRONG = _both("messages lost or answered twice, with repeats and kills", _value(0))
CHANNEL_OUTBOX = Measure("replies delivered from the outbox")
MATRIX_REPLY = Measure("Matrix: a reply, from asking to seeing it")
MATRIX_CROWD = Measure("Matrix: many rooms at once")
MATRIX_WRONG = Measure("Matrix: messages lost or answered twice", _value(0))
MATRIX_START = Measure("Matrix: start of the bot")
HTTP_LIST = _both("HTTP: list 50 threads", None)
HTTP_LIST_P99 = _both("HTTP: list 50 threads: slowest of 100", None)
HTTP_READ = _both("HTTP: read a thread of 100 messages", None)
HTTP_READ_P99 = _both("HTTP: read a thread of 100 messages: slowest of 100", None)
HTTP_CHAT = _both("HTTP: chat with the rehearsal agent", _ratio("≥", 0.6))
HTTP_CHAT_P99 = _both("HTTP: chat with the rehearsal agent: slowest of 100", None)
HTTP_RESPONSE = _both("HTTP: create a response with OpenAI's API", _ratio("≥", 0.4))
HTTP_RESPONSE_P99 = _both("HTTP: create a response with OpenAI's API: slowest of 100", None)
HTTP_RAW = _both("HTTP: read a thread of 10,000 messages", None)
STREAMS_MEMORY = Measure("10,000 idle streams: memory", _value(400))
STREAMS_MEMORY_EACH = Measure("10,000 idle streams: memory for each")
STREAMS_DELAY = Measure("10,000 idle streams: a word to all, slowest of 100", _value(250))
SLOW_CLIENTS = Measure("1,000 slow clients: a request of another")
SLOW_CLIENTS_P99 = Measure("1,000 slow clients: a request of another, slowest of 100", _value(100))
RESUME = Measure("readers that come back at once")
RESUME_P99 = Measure("readers that come back at once: slowest of 100")
SIMULATION = Measure("simulation with faults: steps")
SIMULATION_WRONG = Measure("simulation with faults: seeds that violate an invariant", _value(0))
PAGE_SIZE = Measure("the page: first view, packed", _value(120))
PAGE_PAINT = Measure("the page: first paint, cold")
PAGE_INTERACTIVE = Measure("the page: ready to write, cold")
PAGE_LONG = Measure("the page: a thread of 5,000 messages opens, cold", _value(1_000))
PAGE_FRAMES = Measure("the page: from frame to frame at 500 events a second")
CHECKPOINT_PUT = _both("LangGraph: a checkpoint and its writes, against its own saver", _ratio("≤", 1.0))
CHECKPOINT_READ = _both("LangGraph: the latest checkpoint, against its own saver", _ratio("≤", 1.0))
CHECKPOINT_BYTES = _both("LangGraph: bytes of a checkpoint, against its own saver", _ratio("≤", 0.1))
SESSION_ADD = _both("OpenAI Agents: items added, against its own session", _ratio("≤", 1.0))
SESSION_READ = _both("OpenAI Agents: 1,000 items, against its own session", _ratio("≤", 1.0))
ADK_APPEND = _both("Google ADK: append_event, against its own service", _ratio("≤", 0.2))
ADK_READ = _both("Google ADK: a session of 1,000 events, against its own service", None)
HISTORY_IMPORT = _both("import of another program's conversations", None)
HISTORY_IMPORT_AGAIN = _both("the same import repeated", None)
HISTORY_IMPORT_MEMORY = _both("the same import: memory", _value(250))
PEERS_APPEND = _both("append a turn at 1,000 messages", None)
PEERS_READ = _both("last 12 turns at 1,000 messages", None)

MEASURES = (
    APPEND_ALONE,
    APPEND_FLAT,
    CROWD,
    CROWD_P99,
    CROWD_ERRORS,
    PROCESSES,
    PROCESSES_ERRORS,
    ONE_THREAD,
    ONE_THREAD_LOST,
    LAST_TURNS,
    LAST_TURNS_DEEP,
    WHOLE,
    WHOLE_DECODED,
    BRANCH,
    SAVE,
    LOAD,
    UNDO,
    COPIED,
    LIST,
    SEARCH,
    DISK,
    MEMORY,
    IMPORT,
    HELP,
    TURN,
    FIRST_EVENT,
    FAN_OUT,
    PROMPT,
    RECOVERY,
    RECOVERY_P99,
    RECOVERY_WRONG,
    MASKING,
    MASKING_MESSAGE,
    CHAT,
    CHAT_MEMORY,
    TOOL_CALL,
    MCP_TOOLS,
    COMPACTED,
    COMPACTED_LARGEST,
    CHANNEL_ACKNOWLEDGED,
    CHANNEL_ACKNOWLEDGED_P99,
    CHANNEL_WRONG,
    CHANNEL_OUTBOX,
    MATRIX_REPLY,
    MATRIX_CROWD,
    MATRIX_WRONG,
    MATRIX_START,
    HTTP_LIST,
    HTTP_LIST_P99,
    HTTP_READ,
    HTTP_READ_P99,
    HTTP_CHAT,
    HTTP_CHAT_P99,
    HTTP_RESPONSE,
    HTTP_RESPONSE_P99,
    HTTP_RAW,
    STREAMS_MEMORY,
    STREAMS_MEMORY_EACH,
    STREAMS_DELAY,
    RESUME,
    RESUME_P99,
    SLOW_CLIENTS,
    SLOW_CLIENTS_P99,
    SIMULATION,
    SIMULATION_WRONG,
    PAGE_SIZE,
    PAGE_PAINT,
    PAGE_INTERACTIVE,
    PAGE_LONG,
    PAGE_FRAMES,
    CHECKPOINT_PUT,
    CHECKPOINT_READ,
    CHECKPOINT_BYTES,
    SESSION_ADD,
    SESSION_READ,
    ADK_APPEND,
    ADK_READ,
    HISTORY_IMPORT,
    HISTORY_IMPORT_AGAIN,
    HISTORY_IMPORT_MEMORY,
)
