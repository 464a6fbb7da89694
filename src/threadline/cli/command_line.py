"""The command line: every command with its options, help and examples.

A command names the function that runs it as `module:function` below `threadline.cli`. That module is imported when the
command runs, so `threadline --help` and a mistyped option import nothing but this file.
"""

from __future__ import annotations

import argparse

from threadline.cli.admin_arguments import add_admin, add_purge, add_receipts, add_retention
from threadline.cli.parser import COMMAND, AddCommand, Parser, add_group, adder, port
from threadline.cli.service_command_line import add_audit, add_channels, add_link, add_token, add_users, add_vault
from threadline.cli.thread_filters import add_filter_options
from threadline.version import __version__

FORMATS = ("jsonl", "json", "markdown")
IMPORT_SOURCES = ("chatgpt", "claude-code", "codex", "llm", "uimessages", "openai")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="threadline",
        description="Store and continue conversations between people and AI agents.",
        epilog="Settings come from threadline.toml and THREADLINE_* variables; options override both.",
    )
    parser.add_argument("--version", action="version", version=f"threadline {__version__}", help="print the version")
    _add_common(parser, None)
    commands = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    common = _common_options()
    _add_init(adder(commands, common))
    _add_chat(adder(commands, common))
    _add_serve(adder(commands, common))
    _add_worker(adder(commands, common))
    _add_matrix(add_group(commands, "matrix", "run the Matrix bot", common))
    threads = add_group(commands, "threads", "list, search, branch, export and delete threads", common)
    _add_reads(threads)
    _add_moves(threads)
    _add_transfer(threads)
    _add_removal(threads)
    _add_context(add_group(commands, "context", "pin a text to every prompt for an agent", common))
    _add_agents(add_group(commands, "agents", "list and configure agents", common))
    _add_mcp(adder(commands, common))
    _add_mcp_servers(add_group(commands, "mcp-servers", "show what the MCP servers of the settings offer", common))
    add_link(add_group(commands, "link", "link your accounts on messaging platforms", common))
    add_channels(commands, common)
    add_vault(add_group(commands, "vault", "create and rotate the keys that encrypt stored secrets", common))
    _add_usage(adder(commands, common))
    _add_completion(adder(commands, common))
    add_admin(adder(commands, common))
    _add_bridge(adder(commands, common))
    add_users(add_group(commands, "users", "list, change and disable the users of a tenant", common))
    add_token(add_group(commands, "token", "create and revoke API tokens", common))
    add_audit(add_group(commands, "audit", "read the log of administrative actions", common))
    add_purge(add_group(commands, "purge", "permanently delete a user or a tenant", common))
    add_retention(add_group(commands, "retention", "purge old threads, and hold what must be kept", common))
    add_receipts(add_group(commands, "receipts", "sign and verify receipts of purged users and tenants", common))
    return parser


def _common_options() -> argparse.ArgumentParser:
    """Options that every command takes, in any position before or after its name."""
    common = argparse.ArgumentParser(add_help=False)
    # An option that is not given after the command must not replace one that was given before it.
    _add_common(common, argparse.SUPPRESS)
    return common


def _add_common(parser: argparse.ArgumentParser, default: str | None) -> None:
    group = parser.add_argument_group("common options")
    database = "a file, ':memory:' or postgresql://… (default: settings)"
    group.add_argument("--database", metavar="URL", default=default, help=database)
    group.add_argument("--settings", metavar="FILE", default=default, help="read this file instead of threadline.toml")
    group.add_argument("--tenant", default=default, help="act in this tenant (default: local)")
    group.add_argument("--user", default=default, help="act as this user (default: local)")
    group.add_argument("--json", action="store_true", default=default or False, help="print JSON")


def _add_init(add: AddCommand) -> None:
    init = add("init", "find a model, write threadline.toml and test the model", "init:init", examples=("", "--yes"))
    init.add_argument("--yes", action="store_true", help="use the first model that is found, ask nothing")
    init.add_argument("--model", help="use this model")


def _add_chat(add: AddCommand) -> None:
    chat = add(
        "chat",
        "chat with an agent and save the thread",
        "chat.command:chat",
        examples=(
            "",
            '"why is the sky blue?"',
            "--continue",
            '-p "summarise this" < notes.txt',
            "--server https://threads.example.org",
        ),
    )
    question = "ask this first; without a terminal, print the answer and exit, as with -p"
    chat.add_argument("question", nargs="*", help=question)
    which = chat.add_mutually_exclusive_group()
    which.add_argument(
        "--resume", nargs="?", const="", metavar="ID", help="continue this thread; without ID, choose from a list"
    )
    which.add_argument(
        "--continue", dest="latest", action="store_true", help="continue the latest thread of this folder, or of any"
    )
    chat.add_argument("--fork", action="store_true", help="with --resume or --continue: continue in a branch")
    chat.add_argument("--agent", metavar="ID", help="ask this agent (default: the thread's agent)")
    chat.add_argument("--model", help="use this model of the agent's provider")
    chat.add_argument("--system", metavar="TEXT", help="set the system prompt of a new thread")
    prompt = "ask one question, print the answer and exit; text on standard input is added to it"
    chat.add_argument("-p", "--print", dest="prompt", nargs="?", const="", metavar="TEXT", help=prompt)
    events = "with -p: print every event as a line of JSON, the result last"
    chat.add_argument("--stream-json", action="store_true", help=events)
    chat.add_argument("--server", metavar="URL", help="use a Threadline service instead of a local database")
    chat.add_argument("--token", help="with --server: your API token (default: $THREADLINE_TOKEN)")
    tools = "let the agent read, search, write and edit files of this folder and run commands; it asks first"
    chat.add_argument("--tools", action=argparse.BooleanOptionalAction, default=None, help=tools)
    chat.add_argument("--allow-tools", action="store_true", help="run tools without asking")


def _add_matrix(add: AddCommand) -> None:
    run = add("run", "run the Matrix bot until it is interrupted", "matrix:run_bot")
    run.add_argument("--server", metavar="URL", help="use a Threadline service instead of a local database")
    run.add_argument("--token", help="with --server: a token that acts for users (default: $THREADLINE_TOKEN)")
    setup = add("setup-encryption", "sign the bot's device and show its recovery key", "matrix:setup_encryption")
    which = setup.add_mutually_exclusive_group()
    which.add_argument("--recover", action="store_true", help="read the account's recovery key and restore its keys")
    which.add_argument("--reset", action="store_true", help="replace the account's keys; needs the password")


def _add_serve(add: AddCommand) -> None:
    serve = add(
        "serve",
        "run the HTTP service",
        "serve:serve_http",
        examples=("", "--host 0.0.0.0 --authentication", "--database postgresql://localhost/threads --workers 4"),
    )
    serve.add_argument("--host", help="listen on this address (default: 127.0.0.1)")
    serve.add_argument("--port", type=port, help="listen on this port; 0 picks a free one (default: 8300)")
    serve.add_argument("--workers", type=int, metavar="N", help="run N processes (default: 1)")
    roles = "web: leave turns and deliveries to threadline worker (default: all)"
    serve.add_argument("--role", choices=("all", "web"), help=roles)
    required = "require an API token from every caller; see threadline token create"
    serve.add_argument("--authentication", action="store_true", default=None, help=required)
    serve.add_argument("--listen-fd", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--metrics-folder", help=argparse.SUPPRESS)


def _add_worker(add: AddCommand) -> None:
    worker = add(
        "worker",
        "run the turns and deliveries of a service whose processes have the role web",
        "worker:run_worker",
        examples=("--database postgresql://localhost/threads", "--port 8301"),
    )
    worker.add_argument(
        "--port", type=port, help="serve /healthz, /readyz and /metrics on this port (default: on none)"
    )
    worker.add_argument("--host", help="with --port: listen on this address (default: 127.0.0.1)")


def _add_reads(add: AddCommand) -> None:
    listing = add("list", "list threads, latest activity first", "threads:list_threads")
    listing.add_argument("--limit", type=int, default=50, help="print at most this many (default: 50)")
    listing.add_argument("--cursor", help="print the next page; the previous one ends with its cursor")
    listing.add_argument("--archived", action="store_true", help="list archived threads instead")
    listing.add_argument("--deleted", action="store_true", help="list deleted threads instead; restore them by id")
    add_filter_options(listing)
    show = add("show", "print the messages of a thread", "threads:show_thread")
    _add_thread_argument(show)
    show.add_argument("--last", type=int, metavar="N", help="print only the last N turns")
    search = add("search", "find threads by the words of their titles and messages", "threads:search_threads")
    search.add_argument("words", nargs="+", help="the words to find")
    search.add_argument("--limit", type=int, default=20, help="print at most this many threads, 1–100 (default: 20)")
    search.add_argument("--passages", type=int, default=3, help="messages of each thread, 0–20 (default: 3)")
    search.add_argument("--cursor", help="print the next page; the previous one ends with its cursor")
    add_filter_options(search)
    _add_thread_argument(add("timelines", "list every timeline of a thread", "threads:list_timelines"))
    add("saves", "list saved points", "threads:list_saves")


def _add_moves(add: AddCommand) -> None:
    branch = add("branch", "create a thread that starts with the messages of another", "threads:branch_thread")
    _add_thread_argument(branch)
    branch.add_argument("--at", help="the last message to include: its number or id (default: the last one)")
    branch.add_argument("--title", help="the title of the new thread")
    save = add("save", "name a point of a thread, to load it later", "threads:save_point")
    _add_thread_argument(save)
    save.add_argument("name", help="the name; a name used before moves here")
    save.add_argument("--at", help="the message to save: its number or id (default: the last one)")
    load = add("load", "continue a thread from a saved point", "threads:load_point")
    _add_thread_argument(load)
    load.add_argument("name", help="the name of the saved point")
    _add_thread_argument(add("undo", "remove the last question and its answer", "threads:undo_turn"))
    switch = add("switch", "return to another timeline of a thread, as after undo", "threads:switch_timeline")
    _add_thread_argument(switch)
    switch.add_argument("timeline", help="its id, as threadline threads timelines prints it")
    rename = add("rename", "change the title of a thread", "threads:rename_thread")
    _add_thread_argument(rename)
    rename.add_argument("title", help="the new title")


def _add_transfer(add: AddCommand) -> None:
    out = add(
        "export",
        "export threads to a file",
        "transfer:export_threads",
        examples=("--all -o threads.jsonl", "ID --format markdown"),
    )
    out.add_argument("thread", nargs="*", help="ids or state keys")
    out.add_argument("--all", action="store_true", help="export every thread that is not deleted (jsonl only)")
    out.add_argument("--deleted", action="store_true", help="with --all, deleted threads too")
    out.add_argument("--format", choices=FORMATS, default="jsonl", help="jsonl can be imported again (default: jsonl)")
    out.add_argument("-o", "--output", metavar="FILE", help="write to this file (default: standard output)")
    _add_import(add)


def _add_import(add: AddCommand) -> None:
    into = add(
        "import",
        "import threads of Threadline or of another program; a repeat imports nothing twice",
        "transfer:import_threads",
        examples=("threads.jsonl", "chatgpt-export.zip --dry-run", "--from claude-code --watch"),
    )
    where = "a file, a folder, or - for standard input (default: the folder of --from)"
    into.add_argument("file", nargs="?", help=where)
    which = "the program that the conversations come from (default: recognised by their form)"
    into.add_argument("--from", dest="source", choices=IMPORT_SOURCES, help=which)
    into.add_argument("--dry-run", action="store_true", help="count what would be imported and store nothing")
    into.add_argument("--watch", action="store_true", help="go on, and import sessions as they are written")
    into.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="how often to look (default: 5)")
    trust = "import system prompts and system messages as such: agents follow them, so only from a file you trust"
    into.add_argument("--keep-system", action="store_true", help=trust)


def _add_removal(add: AddCommand) -> None:
    delete = add("delete", "delete a thread; restore brings it back", "threads:delete_thread")
    _add_thread_argument(delete)
    delete.add_argument("--purge", action="store_true", help="delete it permanently")
    _add_thread_argument(add("restore", "restore a deleted thread", "threads:restore_thread"))
    prune = add("prune", "permanently delete threads without messages", "threads:prune_threads")
    prune.add_argument("--older-than", default="0", metavar="TIME", help="only if unused for this long: 7d, 12h, 90s")


def _add_context(add: AddCommand) -> None:
    for name, help in (
        ("show", "print the pinned text"),
        ("set", "pin a text, replacing the previous one"),
        ("clear", "remove the pinned text"),
    ):
        parser = add(name, help, f"contexts:{name}_context")
        parser.add_argument("--agent", metavar="ID", help="for this agent (default: `agent` of the settings)")
        if name == "set":
            parser.add_argument("text", help="the text, or - for standard input")


def _add_bridge(add: AddCommand) -> None:
    bridge = add("bridge", "serve the dispatch protocol in front of an OpenAI-compatible server", "bridge:bridge")
    bridge.epilog = (
        "$THREADLINE_BRIDGE_UPSTREAM_KEY is the API key of that server.\n"
        "If $THREADLINE_BRIDGE_TOKEN is set, callers must send it."
    )
    bridge.add_argument("--upstream", required=True, metavar="URL", help="the OpenAI-compatible server")
    bridge.add_argument("--model", help="request this model")
    bridge.add_argument("--host", default="127.0.0.1", help="listen on this address (default: 127.0.0.1)")
    bridge.add_argument("--port", type=port, default=8787, help="listen on this port (default: 8787)")


def _add_agents(add: AddCommand) -> None:
    add("list", "list the agents of this tenant and those shared by all tenants", "agents:list_agents")
    adding = add(
        "add",
        "add an agent to this tenant; with --base-url, to threadline.toml",
        "agents:add_agent",
        examples=(
            "helper --provider openai --model gpt-5-mini --set api_key=KEY",
            "nearby --provider openai --model qwen3 --base-url http://127.0.0.1:11434/v1",
        ),
    )
    adding.add_argument("id", help="the id, for --agent")
    adding.add_argument("--provider", required=True, help="rehearsal, openai, anthropic or remote")
    adding.add_argument("--model", help="the provider's name of the model")
    adding.add_argument("--base-url", metavar="URL", help="the address of an OpenAI-compatible server, as of Ollama")
    adding.add_argument("--name", help="the name that people see (default: the id)")
    adding.add_argument("--system", metavar="TEXT", help="the system prompt")
    setting = "a setting of the provider, such as api_key=KEY; repeat for several"
    adding.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help=setting)
    for verb, help_ in (
        ("enable", "enable an agent"),
        ("disable", "disable an agent; its threads are kept"),
        ("remove", "remove an agent; its threads are kept"),
    ):
        add(verb, help_, f"agents:{verb}_agent").add_argument("id", help="its id, as threadline agents list prints it")


def _add_mcp(add: AddCommand) -> None:
    mcp = add(
        "mcp",
        "be an MCP server: give editors and agents your threads as tools",
        "mcp_stdio:serve",
        examples=("", "--read-only", "--server https://threads.example.org"),
    )
    mcp.add_argument("--server", metavar="URL", help="use a Threadline service instead of a local database")
    mcp.add_argument("--token", help="with --server: your API token (default: $THREADLINE_TOKEN)")
    mcp.add_argument("--read-only", action="store_true", help="leave out the tools that write")


def _add_mcp_servers(add: AddCommand) -> None:
    add("list", "connect to all servers and list them", "mcp_servers:list_servers")
    test = add("test", "connect, and list tools, prompts and resources", "mcp_servers:test_servers")
    test.add_argument("name", nargs="?", help="the server (default: all)")


def _add_usage(add: AddCommand) -> None:
    usage = add(
        "usage",
        "list the tokens and costs of the tenant",
        "usage:list_usage",
        examples=("", "--by user,model --since 2026-11-01", "--by day --of-user ada --json"),
    )
    groups = "group by day, user, agent, model or kind (turn, summary, title), by commas (default: day,agent,model)"
    usage.add_argument("--by", default="day,agent,model", metavar="GROUPS", help=groups)
    usage.add_argument("--since", metavar="DAY", help="from this day on, UTC (default: the first of the month)")
    usage.add_argument("--until", metavar="DAY", help="up to this day (default: today)")
    usage.add_argument("--of-user", metavar="ID", help="only this user (default: all)")
    usage.add_argument("--agent", metavar="ID", help="only this agent (default: all)")


def _add_completion(add: AddCommand) -> None:
    completion = add(
        "completion",
        "print the script that completes commands and options in a shell",
        "completion:print_script",
        examples=("bash >> ~/.bashrc", "zsh", "fish > ~/.config/fish/completions/threadline.fish"),
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")


def _add_thread_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", help="its id, the first or last characters of its id, or its state key")
