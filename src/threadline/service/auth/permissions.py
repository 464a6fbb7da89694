"""Which operation needs which role. The authentication middleware and the OpenAPI document both read this table.

An operation that is missing here stops the app from being built. `tests/service/test_who_may.py` calls every route as
every kind of caller.
"""

from __future__ import annotations

from typing import NamedTuple

from threadline.core.threads import UserRole


class Permission(NamedTuple):
    role: UserRole | None
    """The lowest role that is allowed; None if no authentication is needed."""
    on_behalf: bool = False
    """Whether a token may do it on behalf of a user, with the header X-On-Behalf-Of."""
    bot_role: UserRole | None = None
    """A lower role that suffices for a token that may act for users, on its own account."""
    is_open_locally: bool = False
    """Whether callers on the same machine need no token."""


PUBLIC = Permission(None)
VIEWER = Permission("viewer", on_behalf=True)
MEMBER = Permission("member", on_behalf=True)
# Impersonation never grants more than the role of a member, so these answer role_refused to an impersonating token.
TENANT_ADMIN = Permission("admin", on_behalf=True)
ADMIN = Permission("admin")
BOT = Permission("admin", bot_role="member")

PERMISSIONS: dict[str, Permission] = {
    # chat
    "chat": MEMBER,
    "resumeChat": VIEWER,
    "stopChat": MEMBER,
    # OpenAI's API
    "listModels": VIEWER,
    "createChatCompletion": MEMBER,
    "createResponse": MEMBER,
    "retrieveResponse": VIEWER,
    "listInputItems": VIEWER,
    "cancelResponse": MEMBER,
    "deleteResponse": MEMBER,
    "createConversation": MEMBER,
    "retrieveConversation": VIEWER,
    "updateConversation": MEMBER,
    "deleteConversation": MEMBER,
    "listConversationItems": VIEWER,
    "createConversationItems": MEMBER,
    "retrieveConversationItem": VIEWER,
    "deleteConversationItem": MEMBER,
    # MCP: each tool that writes needs the role of a member
    "callMcp": VIEWER,
    # threads
    "listThreads": VIEWER,
    "searchThreads": VIEWER,
    "createThread": MEMBER,
    "readThread": VIEWER,
    "updateThread": MEMBER,
    "deleteThread": MEMBER,
    "restoreThread": MEMBER,
    "branchThread": MEMBER,
    "listTimelines": VIEWER,
    "switchTimeline": MEMBER,
    "undo": MEMBER,
    "exportThread": VIEWER,
    "importThreads": MEMBER,
    "listMessages": VIEWER,
    "readMessage": VIEWER,
    "appendMessages": MEMBER,
    "rewindThread": MEMBER,
    "listValues": VIEWER,
    "readValues": MEMBER,
    "writeValues": MEMBER,
    "compactThread": MEMBER,
    "readSummary": VIEWER,
    "changeSummary": MEMBER,
    "purgeThread": MEMBER,
    "pruneThreads": MEMBER,
    "listTurns": VIEWER,
    "readTurn": VIEWER,
    "readPrompt": VIEWER,
    "listUsage": VIEWER,
    "readLineage": VIEWER,
    "listPlaces": VIEWER,
    "readHead": VIEWER,
    # saved points
    "listSavedPoints": VIEWER,
    "savePoint": MEMBER,
    "deleteSavedPoint": MEMBER,
    "loadPoint": MEMBER,
    # agents
    "listAgents": VIEWER,
    "createAgent": TENANT_ADMIN,
    "updateAgent": TENANT_ADMIN,
    "deleteAgent": TENANT_ADMIN,
    "pinContext": MEMBER,
    "readContext": VIEWER,
    "clearContext": MEMBER,
    "askAgent": MEMBER,
    "streamAgent": MEMBER,
    # channels. Making a link code on behalf of a user is not allowed: the link would outlive the token.
    "listLinks": VIEWER,
    "putLink": ADMIN,
    "removeLink": MEMBER,
    "createLinkCode": Permission("member"),
    "redeemLinkCode": BOT,
    "deliverArrival": BOT,
    "claimDeliveries": BOT,
    "settleDelivery": BOT,
    "listRooms": BOT,
    "restoreRoom": BOT,
    "listArrivals": ADMIN,
    "listDeliveries": ADMIN,
    "requeueDelivery": ADMIN,
    "requeueDeliveries": ADMIN,
    "listCredentials": ADMIN,
    "putCredentials": ADMIN,
    "deleteCredentials": ADMIN,
    # webhooks: the platform's signature is checked instead
    "receiveWebhook": PUBLIC,
    "verifyWebhook": PUBLIC,
    # sign-in: what a browser sends before it has a session
    "readSignIn": PUBLIC,
    "openSignInLink": PUBLIC,
    "signOut": Permission("viewer"),
    # Everyone for themselves; for other users the operation itself asks for an administrator.
    "listSignIns": Permission("viewer"),
    "revokeSignIn": Permission("viewer"),
    "revokeSignIns": Permission("viewer"),
    "createSignInLink": ADMIN,
    # users
    "readMe": VIEWER,
    "readHome": VIEWER,
    "chooseHome": MEMBER,
    "listUsers": ADMIN,
    "createUser": ADMIN,
    "readUser": ADMIN,
    "changeUser": ADMIN,
    "eraseUser": ADMIN,
    "eraseMe": Permission("member"),
    "exportMe": Permission("viewer"),
    "exportUser": ADMIN,
    # retention
    "readRetention": ADMIN,
    "listHolds": ADMIN,
    "addHold": ADMIN,
    "releaseHold": ADMIN,
    # administration
    "listTokens": ADMIN,
    "createToken": ADMIN,
    "revokeToken": ADMIN,
    "listAuditEntries": ADMIN,
    "listAllThreads": ADMIN,
    # operations
    "page": PUBLIC,
    "welcome": PUBLIC,
    "openapi": PUBLIC,
    "docs": PUBLIC,
    "health": PUBLIC,
    "ready": PUBLIC,
    "metrics": Permission("admin", is_open_locally=True),
}
