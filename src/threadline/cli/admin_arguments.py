"""The arguments of the commands that administer a database."""

from __future__ import annotations

from threadline.cli.parser import AddCommand

RETENTION_RULES = {
    "age": "a thread's last message",
    "archived": "a thread was archived",
    "deleted": "a thread was deleted",
    "audit": "an audit entry was written",
}


def add_admin(add: AddCommand) -> None:
    migrate = add("migrate", "migrate the database to this version", "admin:migrate")
    migrate.add_argument("--dry-run", action="store_true", help="print the steps, change nothing")
    migrate.add_argument("--partitions", type=int, metavar="N", help="PostgreSQL: create N hash partitions by tenant")
    migrate.add_argument("--distribute", action="store_true", help="PostgreSQL with Citus: distribute by tenant")
    copy = add(
        "copy",
        "copy a database to another, SQLite or PostgreSQL",
        "admin:copy",
        examples=("threadline.sqlite3 postgresql://localhost/threads",),
    )
    copy.add_argument("source", metavar="SRC", help="a file or postgresql://…")
    copy.add_argument("target", metavar="DST", help="a file or postgresql://…; empty, or an interrupted copy")
    _add_backup(add)
    add("compact", "rewrite a SQLite database to free the space of deleted data", "admin:compact")
    add("doctor", "check the settings, agents and database, and print how to fix problems", "doctor:doctor")


def _add_backup(add: AddCommand) -> None:
    default = "a file or postgresql://… (default: `database` of the settings)"
    key_file = "a file with the key that encrypts the backup, from threadline vault key"
    examples = ("threads.backup", "postgresql://localhost/threads threads.backup --key-file backup.key")
    backup = add("backup", "back up a database into one file while it is in use", "admin:backup", examples=examples)
    backup.add_argument("db", nargs="?", metavar="DB", help=default)
    backup.add_argument("file", metavar="FILE", help="the file to create; it must not exist")
    backup.add_argument("--key-file", metavar="PATH", help=key_file)
    examples = ("threads.backup new.sqlite3", "threads.backup postgresql://localhost/new --key-file backup.key")
    restore = add("restore", "restore a backup into an empty database", "admin:restore", examples=examples)
    restore.add_argument("file", metavar="FILE", help="a file that threadline backup created")
    restore.add_argument("db", nargs="?", metavar="DB", help=default)
    restore.add_argument("--key-file", metavar="PATH", help=key_file)
    restore.add_argument("--dry-run", action="store_true", help="check the file, write nothing")


def add_purge(add: AddCommand) -> None:
    user = add("user", "permanently delete all data of a user", "admin:purge_user")
    user.add_argument("id", help="the id of the user")
    tenant = add("tenant", "permanently delete all data of a tenant", "admin:purge_tenant")
    tenant.add_argument("id", help="the id of the tenant")
    for parser in (user, tenant):
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        parser.add_argument("--receipt", metavar="FILE", help="write a receipt of what was deleted into this new file")


def add_retention(add: AddCommand) -> None:
    apply = add("apply", "purge what the retention policy of --tenant no longer keeps", "retention:apply_policy")
    for rule, since in RETENTION_RULES.items():
        text = f"days since {since}, for this run instead of the settings"
        apply.add_argument(f"--{rule}", type=int, metavar="DAYS", help=text)
    apply.add_argument("--dry-run", action="store_true", help="only print what would be purged")
    apply.add_argument("--yes", action="store_true", help="do not ask for confirmation of 0 days")
    hold = add("hold", "forbid purges of a user, a thread or the tenant", "retention:add_hold")
    hold.add_argument("--reason", required=True, help="why, for the list")
    hold.add_argument("--of", metavar="USER", help="of everything of this user")
    hold.add_argument("--thread", metavar="ID", help="of this thread")
    add("holds", "list legal holds", "retention:list_holds")
    release = add("release", "release a legal hold", "retention:release_hold")
    release.add_argument("id", help="its id, as threadline retention holds prints it")


def add_receipts(add: AddCommand) -> None:
    add("key", "print a new key that signs receipts, for THREADLINE_RECEIPTS__KEY", "receipts:make_key")
    add("public-key", "print the public key that verifies the receipts of these settings", "receipts:show_public_key")
    check = add("verify", "verify a receipt, without a database", "receipts:verify_receipt")
    check.add_argument("file", metavar="FILE", help="the receipt")
    check.add_argument("--public-key", metavar="KEY", required=True, help="the public key of the service that made it")
