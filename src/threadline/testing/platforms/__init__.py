"""Stand-ins for Slack, Telegram and WhatsApp on loopback, with their habits: repeats, limits, silence.

They deliver what people write as signed webhooks, take replies as the real ones do, and keep what they took.
"""

from threadline.testing.platforms.platform import Edit, FakePlatform, Fault, Notice, Reply
from threadline.testing.platforms.slack import FakeSlack
from threadline.testing.platforms.slack_sockets import NotAcknowledged, SlackSockets
from threadline.testing.platforms.telegram import FakeTelegram
from threadline.testing.platforms.whatsapp import FakeWhatsApp

__all__ = [
    "Edit",
    "FakePlatform",
    "FakeSlack",
    "FakeTelegram",
    "FakeWhatsApp",
    "Fault",
    "NotAcknowledged",
    "Notice",
    "Reply",
    "SlackSockets",
]
