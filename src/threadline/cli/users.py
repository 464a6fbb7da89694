"""`threadline users …`: the users of a tenant, their roles and their access."""

from __future__ import annotations

import argparse

from threadline.administration.users import USERS_LIMIT
from threadline.cli.connection import load_settings
from threadline.cli.output import format_time, print_json, print_table, report
from threadline.cli.printable import printable
from threadline.core.channels import User
from threadline.maintenance import administering


async def list_users(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    users: list[User] = []
    async with administering(settings, settings.tenant) as administration:
        while page := await administration.users.list(after_id=users[-1].id if users else None):
            users += page
            if len(page) < USERS_LIMIT:
                break
    if args.json:
        print_json({"users": [_describe(user) for user in users]})
        return
    rows = [(user.id, user.role, _access(user), user.display_name or "") for user in users]
    print_table(("id", "role", "access", "name"), rows, empty="No users yet. Create one: threadline users create NAME")


async def create_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.create(args.id, display_name=args.display_name, role=args.role)
    report(args, _describe(user), f"Created user {printable(user.id)}, role {user.role}")


async def change_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.change(args.id, display_name=args.display_name, role=args.role)
    name = f", name {printable(user.display_name)}" if user.display_name else ""
    report(args, _describe(user), f"User {printable(user.id)} now has role {user.role}{name}")


async def disable_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.disable(args.id)
    report(args, _describe(user), f"Disabled {printable(user.id)}: tokens and links are revoked, turns are stopped")


async def enable_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.enable(args.id)
    report(args, _describe(user), f"Enabled {printable(user.id)}. Old tokens and links stay revoked: create new ones")


def _access(user: User) -> str:
    return "enabled" if user.disabled_at is None else f"disabled since {format_time(user.disabled_at)}"


def _describe(user: User) -> dict[str, object]:
    return {"id": user.id, "role": user.role, "displayName": user.display_name, "disabledAt": user.disabled_at}
