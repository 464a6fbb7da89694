"""The same verbs over HTTP: a service in the hand, as the library is.

    from threadline.client import connect

    async with connect("http://127.0.0.1:8300", token="…") as me:
        thread = me.create_thread()
        print((await thread.ask("Where should we stay?")).text)

What is stored, the service decides, so nothing can be appended from here: a thread begins with its first question.
"""

from threadline.api_types import LinkInfo, ThreadInfo, TurnInfo
from threadline.client.replies import Ended, RemoteReply
from threadline.client.threads import RemoteThread
from threadline.client.transport import RetryPolicy
from threadline.client.values import UiMessage
from threadline.client.view import Client, connect

__all__ = [
    "Client",
    "Ended",
    "LinkInfo",
    "RemoteReply",
    "RemoteThread",
    "RetryPolicy",
    "ThreadInfo",
    "TurnInfo",
    "UiMessage",
    "connect",
]
