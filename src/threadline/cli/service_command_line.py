"""The commands of those who run a service: messaging platforms, encryption keys, tokens, audit."""

from __future__ import annotations

import argparse
from typing import Any

from threadline.cli.parser import VERB, AddCommand, add_group, adder, port, sentence

PLATFORMS = ("slack", "telegram", "whatsapp")
LINKED_PLATFORMS = (*PLATFORMS, "matrix")
REQUEUEABLE = ("dead", "window_closed")
INBOX_STATUSES = ("claimed", "accepted", "done", "dead")
OUTBOX_STATUSES = ("waiting", "claimed", "sent", *REQUEUEABLE)


def add_link(add: AddCommand) -> None:
    code = add("code", "create a code that links an account, to send to the bot as !link CODE", "links:make_code")
    code.add_argument("--platform", choices=LINKED_PLATFORMS, help="valid only on this platform (default: any)")
    add("list", "list linked accounts", "links:list_links")
    remove = add("remove", "unlink an account", "links:remove_link")
    remove.add_argument("platform", choices=LINKED_PLATFORMS, help="the platform of the account")
    remove.add_argument("account", help="its id on the platform, as threadline link list prints it")


def add_channels(commands: Any, common: argparse.ArgumentParser) -> None:
    help_ = "configure Slack, Telegram and WhatsApp"
    parser = commands.add_parser("channels", help=help_, description=sentence(help_))
    verbs = parser.add_subparsers(title="verbs", metavar=VERB, required=True)
    add = adder(verbs, common)
    add("key", "print a new key for encrypting secrets, as threadline vault key does", "vault:make_key")
    credentials = add_group(verbs, "credentials", "store the credentials of a platform, encrypted", common)
    setting = credentials("set", "prompt for credentials, or read NAME=VALUE lines", "channels:set_credentials")
    setting.add_argument("platform", choices=PLATFORMS, help="the platform")
    credentials("list", "list platforms that have credentials", "channels:list_credentials")
    removing = credentials("remove", "remove the credentials of a platform", "channels:remove_credentials")
    removing.add_argument("platform", choices=PLATFORMS, help="the platform")
    add("rotate", "encrypt all secrets again, as threadline vault rotate does", "vault:rotate")
    add("doctor", "check the configuration and print how to fix problems", "channels:doctor")
    manifest = add("manifest", "print the manifest to create a Slack app from", "channels:print_manifest")
    manifest.add_argument("platform", choices=("slack",), help="the platform")
    manifest.add_argument("--url", help="the public address of the service (default: use Socket Mode, without one)")
    manifest.add_argument("--name", default="Threadline", help="the name of the app (default: Threadline)")
    inbox = add_group(verbs, "inbox", "show what became of messages from platforms", common)
    arrivals = inbox("list", "list messages that arrived, newest first, without their text", "channels:list_inbox_rows")
    arrivals.add_argument("--status", choices=INBOX_STATUSES, help="only with this status (default: all)")
    arrivals.add_argument("--platform", choices=LINKED_PLATFORMS, help="only from this platform (default: all)")
    arrivals.add_argument("--limit", type=int, default=50, help="print at most this many, 1–1000 (default: 50)")
    outbox = add_group(verbs, "outbox", "list and requeue deliveries", common)
    listing = outbox("list", "list deliveries, newest first", "channels:list_outbox")
    listing.add_argument("--status", choices=OUTBOX_STATUSES, help="only with this status (default: all)")
    listing.add_argument("--platform", choices=LINKED_PLATFORMS, help="only to this platform (default: all)")
    listing.add_argument("--limit", type=int, default=50, help="print at most this many, 1–1000 (default: 50)")
    outbox("backlog", "count deliveries that are not sent, by platform and status", "channels:show_backlog")
    requeue = outbox(
        "requeue",
        "send undelivered messages again",
        "channels:requeue",
        examples=("01jcq8zx-0", "--all", "--since 6h --platform slack"),
    )
    requeue.add_argument("id", nargs="?", help="one delivery, as threadline channels outbox list prints it")
    requeue.add_argument("--all", action="store_true", help="all that are dead or whose window was closed")
    requeue.add_argument("--since", metavar="TIME", help="those of the last 30m, 6h or 2d, or since a time with a zone")
    requeue.add_argument("--platform", choices=LINKED_PLATFORMS, help="with --all or --since: only to this platform")
    requeue.add_argument("--status", choices=REQUEUEABLE, help="with --all or --since: only with this status")
    connect = add("connect", "receive messages where no webhook reaches this machine", "channel_connections:connect")
    connect.epilog = "Slack delivers over Socket Mode, Telegram is polled. Replies are sent by this process too."
    connect.add_argument("platform", nargs="*", help="slack, telegram (default: those with credentials)")
    _add_simulation(add)


def add_vault(add: AddCommand) -> None:
    add("key", "print a new key, for [vault.keys] of the settings", "vault:make_key")
    add("rotate", "encrypt all credentials and agents' keys with the current key", "vault:rotate")


def add_token(add: AddCommand) -> None:
    create = add(
        "create",
        "create an API token for --user in --tenant and print it once",
        "access:create_token",
        examples=("--user ada --name laptop --expires 30d",),
    )
    create.add_argument("--name", default="unnamed", help="a note for the list of tokens")
    roles = "what it may do (default: member)"
    create.add_argument("--role", choices=("viewer", "member", "admin"), default="member", help=roles)
    create.add_argument("--expires", metavar="TIME", help="expire after this long: 30d, 12h, never (default: 90d)")
    create.add_argument("--acts-for-users", action="store_true", help="allow it to act for any user, as a bot does")
    add("list", "list tokens, newest first", "access:list_tokens")
    revoke = add("revoke", "revoke a token immediately", "access:revoke_token")
    revoke.add_argument("id", help="its id, as threadline token list prints it")


def add_users(add: AddCommand) -> None:
    add("list", "list the users of the tenant", "users:list_users")
    create = add("create", "create a user", "users:create_user", examples=("ada --display-name 'Ada Lovelace'",))
    change = add("set", "change a user's name or role", "users:change_user", examples=("ada --role viewer",))
    disable = add("disable", "end a user's access: revoke tokens, sign-ins and links, stop turns", "users:disable_user")
    enable = add("enable", "give a disabled user access again, with new tokens and links", "users:enable_user")
    export = add(
        "export",
        "export everything of a user: threads, pinned texts, links, usage",
        "users:export_user",
        examples=("ada -o ada.jsonl",),
    )
    export.add_argument("-o", "--output", metavar="FILE", help="write to this file (default: standard output)")
    link = add("link", "print a link that signs a user in once", "users:create_link", examples=("ada --expires 1d",))
    link.add_argument("--expires", metavar="TIME", help="expire after this long: 15m, 1d (default: 15m, see [sign_in])")
    link.add_argument("--url", help="the address of the service (default: that of [sign_in], or of [service])")
    sessions = add("sign-ins", "list where a user is signed in", "users:list_sign_ins")
    out = add("sign-out", "sign a user out on all devices, and end unused links", "users:sign_out")
    out.add_argument("--session", metavar="ID", help="only this one, as threadline users sign-ins prints it")
    for parser in (create, change, disable, enable, export, link, sessions, out):
        parser.add_argument("id", help="the id of the user")
    for parser in (create, change):
        parser.add_argument("--display-name", metavar="NAME", help="a name for people; empty removes it")
    roles = ("viewer", "member", "admin")
    create.add_argument("--role", choices=roles, default="member", help="what they may do (default: member)")
    change.add_argument("--role", choices=roles, help="what they may do; tokens and sign-ins get at most this role")


def add_audit(add: AddCommand) -> None:
    listing = add("list", "list administrative actions, newest first", "access:list_acts")
    listing.add_argument("--limit", type=int, default=50, help="print at most this many, 1–100 (default: 50)")
    listing.add_argument("--before", metavar="ID", help="print the next page: entries older than this one")


def _add_simulation(add: AddCommand) -> None:
    simulate = add("simulate", "chat with the bot on fake platforms, without an account", "simulation.command:simulate")
    simulate.epilog = "With --url, $THREADLINE_TOKEN must be an admin token of that service."
    simulate.add_argument("platform", nargs="*", help="slack, telegram, whatsapp (default: all)")
    simulate.add_argument("--url", help="use this running service (default: start a temporary one)")
    simulate.add_argument(
        "--port", type=port, default=8390, help="with --url: port of the first fake platform (default: 8390)"
    )
