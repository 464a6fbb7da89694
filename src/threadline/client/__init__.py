"""The gateway over HTTP: the same calls as the library, on a service at an address.

from threadline.client import connect

async with connect("http://127.0.0.1:8300", token="…") as me:
    thread = await me.create_thread()
    print((await thread.ask("Where should we stay?")).text)
"""

from threadline.client.replies import RemoteReply
from threadline.client.threads import RemoteThread
from threadline.client.transport import RetryPolicy
from threadline.client.view import Client, RemoteContexts, connect

__all__ = ["Client", "RemoteContexts", "RemoteReply", "RemoteThread", "RetryPolicy", "connect"]
