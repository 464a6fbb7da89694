"""The interfaces between Threadline and its adapters, each as a Protocol.

A `Store` opens sessions and runs transactions. Every operation is bound to one scope: rows of another tenant or owner
do not exist for it, and their ids get the same answer as unknown ids. The conformance suite in `threadline.testing`
quotes these contracts; a class that passes it is a store.
"""

from threadline.core.sealing import Masker
from threadline.ports.admission import Admission, Spending, SpendingRefusal
from threadline.ports.agents import Agent, AgentServices, Approver, Guard, ToolJournal, Verdict, WritingAgent
from threadline.ports.gateway import Gateway, GatewayContexts, GatewayReply, GatewayThread
from threadline.ports.gateway_values import GatewayValues
from threadline.ports.platforms import (
    Answered,
    Channel,
    EditableChannel,
    Http,
    InspectedChannel,
    InspectionContext,
    LiveChannel,
    PolledChannel,
    Receiver,
    SearchableChannel,
    Socket,
    SocketChannel,
    Sockets,
    StreamingChannel,
    WindowedChannel,
)
from threadline.ports.process import Cipher, Clock, Processes, Span, SpanKind, Tracer
from threadline.ports.store import (
    DatabaseTransaction,
    Finding,
    PoolStats,
    Store,
    StoreSession,
    Transaction,
    TransactionBody,
    Watch,
    WorkWatch,
)
from threadline.ports.summaries import Summariser, SummaryTask, WrittenSummary

__all__ = [
    "Admission",
    "Agent",
    "AgentServices",
    "Answered",
    "Approver",
    "Channel",
    "Cipher",
    "Clock",
    "DatabaseTransaction",
    "EditableChannel",
    "Finding",
    "Gateway",
    "GatewayContexts",
    "GatewayReply",
    "GatewayThread",
    "GatewayValues",
    "Guard",
    "Http",
    "InspectedChannel",
    "InspectionContext",
    "LiveChannel",
    "Masker",
    "PolledChannel",
    "PoolStats",
    "Processes",
    "Receiver",
    "SearchableChannel",
    "Socket",
    "SocketChannel",
    "Sockets",
    "Span",
    "SpanKind",
    "Spending",
    "SpendingRefusal",
    "Store",
    "StoreSession",
    "StreamingChannel",
    "Summariser",
    "SummaryTask",
    "ToolJournal",
    "Tracer",
    "Transaction",
    "TransactionBody",
    "Verdict",
    "Watch",
    "WindowedChannel",
    "WorkWatch",
    "WritingAgent",
    "WrittenSummary",
]
