"""`threadline users …`: the users of a tenant, their roles, their access and their sign-ins."""

from __future__ import annotations

import argparse
import datetime as dt
import sys

from threadline.administration.user_archive import UserArchive
from threadline.administration.users import USERS_LIMIT
from threadline.cli.connection import admin_scope, load_settings, open_threadline
from threadline.cli.output import format_time, output_file, pluralize, print_json, print_table, report
from threadline.cli.printable import printable
from threadline.cli.thread_ids import find_part
from threadline.core.channels import User
from threadline.core.durations import parse_duration
from threadline.core.errors import InvalidInput
from threadline.core.sign_ins import SignIn, link_url
from threadline.maintenance import administering, login


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
    if args.display_name is None and args.role is None:
        raise InvalidInput("nothing to change: give --display-name or --role")
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.change(args.id, display_name=args.display_name, role=args.role)
    name = f", name {printable(user.display_name)}" if user.display_name else ""
    report(args, _describe(user), f"User {printable(user.id)} now has role {user.role}{name}")


async def disable_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.disable(args.id)
    report(
        args,
        _describe(user),
        f"Disabled {printable(user.id)}: tokens, sign-ins and links are revoked, turns stopped",
    )


async def enable_user(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        user = await administration.users.enable(args.id)
    report(args, _describe(user), f"Enabled {printable(user.id)}. Old tokens and links stay revoked: create new ones")


async def export_user(args: argparse.Namespace) -> None:
    async with open_threadline(args) as tl:
        who = f"operator:{login()}"
        archive = UserArchive(tl.store, tl.sealer, tl.clock, tl.value_encoder, admin_scope(tl), actor_id=who)
        lines = await archive.export(args.id)
        with output_file(args.output) as out:
            async for line in lines:
                out.write(line)


async def create_link(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    lifetime = settings.sign_in.link_lifetime if args.expires is None else parse_duration(args.expires)
    async with administering(settings, settings.tenant) as administration:
        sign_in, secret = await administration.sign_ins.create_link(args.id, lifetime)
    local = f"http://{settings.service.host}:{settings.service.port}"
    url = link_url(args.url or settings.sign_in.url or local, secret)
    if args.json:
        print_json({"url": url, **_describe_sign_in(sign_in)})
        return
    print(url, flush=True)
    # On standard error, so that a script that captures the output gets the link and nothing else.
    until = format_time(sign_in.expires_at)
    print(f"Signs {printable(args.id)} in once, until {until}. Send it to nobody else.", file=sys.stderr)


async def list_sign_ins(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        found = await administration.sign_ins.list(args.id)
    if args.json:
        print_json({"signIns": [_describe_sign_in(each) for each in found]})
        return
    rows = [
        (
            each.id,
            "link, not used" if each.opened_at is None else each.method,
            format_time(each.last_seen_at or each.created_at),
            format_time(each.expires_at),
            printable(each.device or ""),
        )
        for each in found
    ]
    print_table(("id", "method", "last used", "expires", "device"), rows, empty="Not signed in anywhere.")


async def sign_out(args: argparse.Namespace) -> None:
    settings = load_settings(args)
    async with administering(settings, settings.tenant) as administration:
        sign_ins = administration.sign_ins
        if args.session is None:
            count = await sign_ins.revoke_all(args.id)
        else:
            known = [each.id for each in await sign_ins.list(args.id)]
            await sign_ins.revoke(args.id, find_part(args.session, known, "sign-in"))
            count = 1
    report(args, {"revoked": count}, f"Signed {printable(args.id)} out: ended {pluralize(count, 'sign-in')}")


def _describe_sign_in(sign_in: SignIn) -> dict[str, dt.datetime | str | None]:
    return {
        "id": sign_in.id,
        "user": sign_in.owner_id,
        "role": sign_in.role,
        "method": sign_in.method,
        "device": sign_in.device,
        "createdAt": sign_in.created_at,
        "openedAt": sign_in.opened_at,
        "lastSeenAt": sign_in.last_seen_at,
        "expiresAt": sign_in.expires_at,
    }


def _access(user: User) -> str:
    return "enabled" if user.disabled_at is None else f"disabled since {format_time(user.disabled_at)}"


def _describe(user: User) -> dict[str, object]:
    return {"id": user.id, "role": user.role, "displayName": user.display_name, "disabledAt": user.disabled_at}
