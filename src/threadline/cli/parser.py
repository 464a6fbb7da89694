"""The command line, declared in one place: every command, its options and its help.

A command names the function that runs it as `module:function` under `threadline.cli`; that module is imported when the
command runs, so that `threadline --help` and the wrong option cost nothing but this file.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn, Protocol

from threadline.version import __version__

PLATFORMS = ("slack", "telegram", "whatsapp")
LINKED = (*PLATFORMS, "matrix")
FORMATS = ("jsonl", "json", "markdown")
HIGHEST_PORT = 65_535
_COMMAND, _VERB = "COMMAND", "VERB"
_NO_CHOICE = re.compile(r"invalid choice: '(?P<typed>.*)' \(choose from (?P<choices>.*)\)")


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong and where help is; whoever types a command without its verb is shown the verbs.
    Verbs are parsed by the same class."""

    def error(self, message: str) -> NoReturn:
        if message.endswith((f": {_COMMAND}", f": {_VERB}")):
            self.exit(2, self.format_help())
        self.exit(2, f"{self.prog}: {message}{_suggested(message)} (see {self.prog} --help)\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # Only the one who is asked knows of them, and would name its own help instead of the verb's.
            self.exit(2, f"{parsed.prog}: unrecognized arguments: {' '.join(unknown)} (see {parsed.prog} --help)\n")
        return parsed


def _suggested(message: str) -> str:
    typed = _NO_CHOICE.search(message)
    if typed is None:
        return ""
    import difflib  # noqa: PLC0415 - only who mistypes pays for it

    near = difflib.get_close_matches(typed["typed"], re.findall(r"[\w-]+", typed["choices"]), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class AddVerb(Protocol):
    def __call__(self, name: str, help: str, run: str) -> argparse.ArgumentParser: ...


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="threadline",
        description="Keeps the conversations between people and AI agents.",
        epilog="Settings come from threadline.toml and THREADLINE_* variables; options win over both.",
    )
    parser.add_argument("--version", action="version", version=f"threadline {__version__}")
    commands = parser.add_subparsers(title="commands", metavar=_COMMAND, required=True)
    common = _common_options()
    _add_chat(_adder(commands, common))
    _add_serve(_adder(commands, common))
    _add_matrix(_group(commands, "matrix", "the Matrix bot", common))
    threads = _group(commands, "threads", "list, read, branch, save, export … threads", common)
    _add_reading(threads)
    _add_moving(threads)
    _add_transfer(threads)
    _add_removal(threads)
    _add_context(_group(commands, "context", "the text pinned for an agent", common))
    _add_agents(_group(commands, "agents", "who can be asked", common))
    _add_link(_group(commands, "link", "accounts on messaging platforms that are yours", common))
    _add_channels(commands, common)
    _add_admin(_adder(commands, common))
    _add_token(_group(commands, "token", "who may use the service", common))
    _add_audit(_group(commands, "audit", "what administrators did", common))
    _add_purge(_group(commands, "purge", "remove a user or a tenant for good", common))
    return parser


def _common_options() -> argparse.ArgumentParser:
    """Options that every command takes, wherever they stand after it."""
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("common options")
    group.add_argument("--database", metavar="URL", help="a file, ':memory:' or postgresql://… (default: settings)")
    group.add_argument("--settings", metavar="FILE", help="read this file instead of threadline.toml")
    group.add_argument("--tenant", help="act in this tenant (default: local)")
    group.add_argument("--user", help="act as this user (default: local)")
    group.add_argument("--json", action="store_true", help="print JSON")
    return common


def _adder(commands: Any, common: argparse.ArgumentParser) -> AddVerb:
    def add(name: str, help: str, run: str) -> argparse.ArgumentParser:
        described = help[:1].upper() + help[1:] + "."
        parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=described, parents=[common])
        parser.set_defaults(run=run, prog=parser.prog)
        return parser

    return add


def _group(commands: Any, name: str, help: str, common: argparse.ArgumentParser) -> AddVerb:
    parser = commands.add_parser(name, help=help, description=help[:1].upper() + help[1:] + ".")
    return _adder(parser.add_subparsers(title="verbs", metavar=_VERB, required=True), common)


def _add_chat(add: AddVerb) -> None:
    chat = add("chat", "talk to an agent; the thread is kept", "chat.command:chat")
    which = chat.add_mutually_exclusive_group()
    which.add_argument("--resume", nargs="?", const="", metavar="ID", help="go on with a thread (a list without ID)")
    which.add_argument("--continue", dest="latest", action="store_true", help="go on with the latest thread")
    chat.add_argument("--fork", action="store_true", help="with --resume or --continue: go on in a branch of it")
    chat.add_argument("--agent", metavar="ID", help="who answers (default: the agent of the settings)")
    chat.add_argument("--model", help="which model the agent is to use")
    chat.add_argument("--system", metavar="TEXT", help="the system prompt of a new thread")
    question = "ask once and leave; without TEXT the question is standard input"
    chat.add_argument("-p", "--print", dest="prompt", nargs="?", const="-", metavar="TEXT", help=question)
    chat.add_argument("--server", metavar="URL", help="talk to a service instead of a database here")
    chat.add_argument("--token", help="with --server: who you are (default: the variable THREADLINE_TOKEN)")
    chat.add_argument("--allow-tools", action="store_true", help="run tools without asking")


def _add_matrix(add: AddVerb) -> None:
    run = add("run", "talk on Matrix, until told to end", "matrix:run_bot")
    run.add_argument("--server", metavar="URL", help="for a service that has the threads, instead of a database here")
    whose = "with --server: one that acts for users (default: the variable THREADLINE_TOKEN)"
    run.add_argument("--token", help=whose)


def _add_serve(add: AddVerb) -> None:
    serve = add("serve", "serve threads over HTTP, for AI SDK clients and everyone else", "serve:serve_http")
    serve.add_argument("--host", help="the address to serve on (default: 127.0.0.1)")
    serve.add_argument("--port", type=_port, help="0 takes a free one (default: 8300)")
    serve.add_argument("--workers", type=int, metavar="N", help="so many processes on one address (default: 1)")
    asking = "ask every caller for a token, as `threadline token create` makes them"
    serve.add_argument("--authentication", action="store_true", default=None, help=asking)
    serve.add_argument("--listen-fd", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--worker", type=int, help=argparse.SUPPRESS)


def _add_reading(add: AddVerb) -> None:
    listing = add("list", "threads, latest activity first", "threads:list_threads")
    listing.add_argument("--limit", type=int, default=50, help="how many (1 to 100)")
    listing.add_argument("--cursor", help="go on after an earlier page")
    listing.add_argument("--archived", action="store_true", help="the archived ones")
    listing.add_argument("--deleted", action="store_true", help="the deleted ones, which can be restored")
    show = add("show", "a thread's messages", "threads:show_thread")
    _takes_thread(show)
    show.add_argument("--last", type=int, metavar="N", help="only the last N turns")
    search = add("search", "messages that hold all the words", "threads:search_threads")
    search.add_argument("words", nargs="+")
    search.add_argument("--limit", type=int, default=20, help="how many (1 to 100)")
    _takes_thread(add("timelines", "every version a thread has had", "threads:list_timelines"))
    add("saves", "saved points", "threads:list_saves")


def _add_moving(add: AddVerb) -> None:
    branch = add("branch", "a new thread that begins as this one", "threads:branch_thread")
    _takes_thread(branch)
    branch.add_argument("--at", help="the last message to take along: its number or id (default: all)")
    branch.add_argument("--title")
    save = add("save", "give this point of a thread a name", "threads:save_point")
    _takes_thread(save)
    save.add_argument("name")
    save.add_argument("--at", help="a message's number or id (default: the end)")
    load = add("load", "go on from a saved point", "threads:load_point")
    _takes_thread(load)
    load.add_argument("name")
    _takes_thread(add("undo", "go back to before the last question", "threads:undo_turn"))
    switch = add("switch", "go back to another version", "threads:switch_timeline")
    _takes_thread(switch)
    switch.add_argument("timeline")
    rename = add("rename", "give a thread another title", "threads:rename_thread")
    _takes_thread(rename)
    rename.add_argument("title")


def _add_transfer(add: AddVerb) -> None:
    out = add("export", "write threads to a file", "transfer:export_threads")
    out.add_argument("thread", nargs="*", help="ids or state keys")
    out.add_argument("--all", action="store_true", help="every living thread (JSON Lines only)")
    out.add_argument("--format", choices=FORMATS, default="jsonl")
    out.add_argument("-o", "--output", metavar="FILE", help="(default: standard output)")
    into = add("import", "read threads from JSON Lines, all or nothing", "transfer:import_threads")
    into.add_argument("file", help="a file, or - for standard input")


def _add_removal(add: AddVerb) -> None:
    delete = add("delete", "hide a thread (restore brings it back)", "threads:delete_thread")
    _takes_thread(delete)
    delete.add_argument("--purge", action="store_true", help="remove it for good")
    _takes_thread(add("restore", "bring a deleted thread back", "threads:restore_thread"))
    prune = add("prune", "remove threads that never held a message", "threads:prune_threads")
    prune.add_argument("--older-than", default="0", metavar="TIME", help="untouched for so long, e.g. 7d or 12h")


def _add_context(add: AddVerb) -> None:
    for name, help in (
        ("show", "what is pinned"),
        ("set", "pin a text, instead of what was pinned"),
        ("clear", "pin nothing"),
    ):
        parser = add(name, help, f"contexts:{name}_context")
        parser.add_argument("--agent", metavar="ID", help="(default: the agent of the settings)")
        if name == "set":
            parser.add_argument("text", help="the text, or - to read standard input")


def _add_admin(add: AddVerb) -> None:
    migrate = add("migrate", "bring the database to this version", "admin:migrate")
    migrate.add_argument("--dry-run", action="store_true", help="only say what would be done")
    migrate.add_argument("--partitions", type=int, metavar="N", help="PostgreSQL: N hash partitions by tenant")
    migrate.add_argument("--distribute", action="store_true", help="PostgreSQL with Citus: distribute by tenant")
    copy = add("copy", "copy a whole database into another", "admin:copy")
    copy.add_argument("source", metavar="SRC", help="a file or postgresql://…")
    copy.add_argument("target", metavar="DST", help="a file or postgresql://…; may hold an unfinished copy")
    backup = add("backup", "copy a SQLite file while it is in use", "admin:backup")
    backup.add_argument("file", help="where to; must not exist")
    add("compact", "write a SQLite file anew, without what was purged", "admin:compact")
    add("doctor", "look for what is wrong, and say what to do", "admin:doctor")
    bridge = add("bridge", "serve dispatch payloads from an OpenAI-compatible server", "bridge:bridge")
    bridge.epilog = (
        "THREADLINE_BRIDGE_UPSTREAM_KEY is the server's key; THREADLINE_BRIDGE_TOKEN is what callers must present."
    )
    bridge.add_argument("--upstream", required=True, metavar="URL", help="the server to ask")
    bridge.add_argument("--model", help="which model to ask for")
    bridge.add_argument("--host", default="127.0.0.1")
    bridge.add_argument("--port", type=_port, default=8787)


def _add_agents(add: AddVerb) -> None:
    add("list", "the tenant's own agents, and those that every tenant has", "agents:list_agents")
    adding = add("add", "an agent of the tenant's own", "agents:add_agent")
    adding.add_argument("id", help="how it is asked for")
    adding.add_argument("--provider", required=True, help="who answers: rehearsal, openai, anthropic, remote …")
    adding.add_argument("--model", help="the provider's name for the model")
    adding.add_argument("--name", help="how it is shown (default: its id)")
    adding.add_argument("--system", metavar="TEXT", help="what it is always told")
    adding.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="what the provider takes")
    for verb, help_ in (("enable", "let it be asked again"), ("disable", "let nobody ask it"), ("remove", "forget it")):
        add(verb, help_, f"agents:{verb}_agent").add_argument("id")


def _add_link(add: AddVerb) -> None:
    code = add("code", "make a code to send to the bot: it works once, for some minutes", "links:make_code")
    code.add_argument("--platform", choices=LINKED, help="only from this one (default: from any)")
    add("list", "linked accounts", "links:list_links")
    remove = add("remove", "unlink an account", "links:remove_link")
    remove.add_argument("platform", choices=LINKED)
    remove.add_argument("account", help="its id on the platform, as the list shows it")


def _add_channels(commands: Any, common: argparse.ArgumentParser) -> None:
    help_ = "Slack, Telegram and WhatsApp"
    parser = commands.add_parser("channels", help=help_, description=help_ + ".")
    verbs = parser.add_subparsers(title="verbs", metavar=_VERB, required=True)
    add = _adder(verbs, common)
    add("key", "make a key that seals credentials", "channels:make_key")
    credentials = _group(verbs, "credentials", "a platform's secrets, sealed", common)
    setting = credentials("set", "ask for them, or read NAME=VALUE lines", "channels:set_credentials")
    setting.add_argument("platform", choices=PLATFORMS)
    credentials("list", "which platforms have some", "channels:list_credentials")
    credentials("remove", "forget a platform's", "channels:remove_credentials").add_argument(
        "platform", choices=PLATFORMS
    )
    add("rotate", "seal all credentials anew under the current key", "channels:rotate")
    add("doctor", "what is misconfigured, and what to do about it", "channels:doctor")
    outbox = _group(verbs, "outbox", "deliveries to platforms", common)
    listing = outbox("list", "newest first", "channels:list_outbox")
    listing.add_argument("--status", choices=("waiting", "claimed", "sent", "dead", "window_closed"))
    listing.add_argument("--limit", type=int, default=50, help="how many (1 to 1000)")
    outbox("requeue", "try a dead one again", "channels:requeue").add_argument("id")
    poll = add("poll", "ask for what arrives, where no webhook can reach this machine", "channels:poll")
    poll.add_argument("platform", choices=("telegram",))
    _add_simulation(add)


def _add_token(add: AddVerb) -> None:
    create = add("create", "a new token for --user in --tenant, shown once", "access:create_token")
    create.add_argument("--name", default="unnamed", help="what it is for, for the list")
    create.add_argument("--role", choices=("viewer", "member", "admin"), default="member", help="(default: member)")
    create.add_argument("--expires", metavar="TIME", help="works for so long, e.g. 30d or 12h (default: until revoked)")
    create.add_argument("--acts-for-users", action="store_true", help="may act for any user of the tenant (for a bot)")
    add("list", "the tenant's tokens, newest first", "access:list_tokens")
    revoke = add("revoke", "end a token, from the next request on", "access:revoke_token")
    revoke.add_argument("id", help="its id, as the list shows it")


def _add_audit(add: AddVerb) -> None:
    listing = add("list", "administrative acts of the tenant, newest first", "access:list_acts")
    listing.add_argument("--limit", type=int, default=50, help="how many (1 to 100)")
    listing.add_argument("--before", metavar="ID", help="go on before the last one of an earlier page")


def _add_simulation(add: AddVerb) -> None:
    simulate = add("simulate", "write to the bot on platforms that are not there", "simulation.command:simulate")
    simulate.epilog = "With --url, THREADLINE_TOKEN is an administrator's token of that service."
    simulate.add_argument("platform", nargs="*", help="slack, telegram, whatsapp (default: all)")
    simulate.add_argument("--url", help="a service that runs already (default: one of its own)")
    simulate.add_argument("--port", type=_port, default=8390, help="with --url: where the first stand-in listens")


def _add_purge(add: AddVerb) -> None:
    user = add("user", "everything of one user", "admin:purge_user")
    user.add_argument("id")
    tenant = add("tenant", "everything of one tenant", "admin:purge_tenant")
    tenant.add_argument("id")
    for parser in (user, tenant):
        parser.add_argument("--yes", action="store_true", help="do not ask")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"a port is 0 to {HIGHEST_PORT}, not {text!r}")
    return int(text)


def _takes_thread(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", help="its id or state key")
