"""The same library without `await`, for scripts and notebooks.

    python examples/without_await.py

Prints:

    user: Remember the number 7.
    assistant: I will.
"""

from __future__ import annotations

import threadline

with threadline.open_sync(":memory:") as tl:
    thread = tl.as_user("ada").create_thread(title="Numbers")
    thread.append("Remember the number 7.", threadline.assistant("I will."))
    for message in thread.messages():
        print(f"{message.role}: {message.text}")
