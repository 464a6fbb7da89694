"""The seams: what the system needs from outside, each as a Protocol.

A `Store` hands out `Transaction`s. Every verb of a Transaction is bound to one scope and sees nothing outside it: what
belongs to another tenant or owner does not exist, and asking for it gives what asking for an unknown id gives. The
conformance suite in `threadline.testing` quotes these contracts; whoever passes it is a store.
"""

from threadline.core.sealing import Masker
from threadline.ports.agents import Agent, AgentServices, Approver, Guard, ToolJournal, Verdict
from threadline.ports.gateway import Gateway, GatewayContexts, GatewayReply, GatewayThread
from threadline.ports.platforms import Answered, Channel, Http, Identities, Platform, PolledChannel
from threadline.ports.process import Cipher, Clock, Span, SpanKind, Tracer
from threadline.ports.store import Finding, PoolStats, Store, StoreSession, Transaction, TransactionBody, Watch

__all__ = [
    "Agent",
    "AgentServices",
    "Answered",
    "Approver",
    "Channel",
    "Cipher",
    "Clock",
    "Finding",
    "Gateway",
    "GatewayContexts",
    "GatewayReply",
    "GatewayThread",
    "Guard",
    "Http",
    "Identities",
    "Masker",
    "Platform",
    "PolledChannel",
    "PoolStats",
    "Span",
    "SpanKind",
    "Store",
    "StoreSession",
    "ToolJournal",
    "Tracer",
    "Transaction",
    "TransactionBody",
    "Verdict",
    "Watch",
]
