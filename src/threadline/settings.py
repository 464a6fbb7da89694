"""Settings: `threadline.toml` and `THREADLINE_*` variables become one frozen value.

The file is the one given, else the one in the working directory, else the one in the user's configuration folder.
Variables override the file; options of the command line override both. An unknown key is an error, so that a typing
mistake does not become a default. `THREADLINE_DATABASE` sets `database`; two underscores separate sections:
`THREADLINE_LIMITS__MESSAGE_BYTES` sets `message_bytes` of `[limits]`; a list is separated by commas.
docs/settings.md describes every key.
"""

from __future__ import annotations

import os
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from threadline.core.access import TokenRole
from threadline.core.channel_settings import ChannelSettings as ChannelSettings
from threadline.core.channel_settings import ChannelsSettings as ChannelsSettings
from threadline.core.config_errors import explain
from threadline.core.errors import SettingsInvalid
from threadline.core.masking import PersonalDataKind, make_masker
from threadline.core.mcp_servers import McpServer
from threadline.core.model_texts import CompactionSettings, TitleSettings
from threadline.core.oidc import OidcProvider
from threadline.core.receipts import ReceiptSettings
from threadline.core.retention import RetentionSettings
from threadline.core.sealing import Limits, Sealer
from threadline.core.sign_ins import SignInSettings
from threadline.core.timeouts import Timeouts
from threadline.core.usage import Budget, Price
from threadline.core.windows import CHANNEL_WINDOW, READING_WINDOW, Window
from threadline.core.workspace_settings import WorkspaceSettings

_PREFIX = "THREADLINE_"
_FILE_VARIABLE = "THREADLINE_SETTINGS"
_BRIDGE_VARIABLES = "THREADLINE_BRIDGE_"
_OTHER_VARIABLES = frozenset((_FILE_VARIABLE, "THREADLINE_TOKEN"))


class TenantMasking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    personal_data: tuple[PersonalDataKind, ...] = ()


class MaskingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`personal_data` is masked for every tenant that has no entry of its own in `tenants`."""

    enabled: bool = True
    personal_data: tuple[PersonalDataKind, ...] = ()
    tenants: dict[str, TenantMasking] = {}

    def build_sealer(self, limits: Limits) -> Sealer:
        if not self.enabled:
            return Sealer(limits)
        tenants = {tenant_id: make_masker(chosen.personal_data) for tenant_id, chosen in self.tenants.items()}
        return Sealer(limits, make_masker(self.personal_data), tenants)


class GuardSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request that matches one of `patterns` is refused with `message`. No patterns: no guard."""

    patterns: tuple[str, ...] = ()
    message: str = "This request was refused by a rule of this service."


class WindowSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a thread is put into a prompt: for web, API and terminal (`reading`), and for messaging platforms."""

    reading: Window = READING_WINDOW
    channels: Window = CHANNEL_WINDOW


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One agent of `[agents]`, keyed by its id. `tools` are `module:name` of Python functions, `mcp` names
    of servers in `[mcp]`."""

    provider: str
    model: str | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    settings: dict[str, Any] = {}

    @property
    def names_code(self) -> bool:
        """Whether it names Python modules, as `module:name`."""
        return bool(self.tools) or not self.settings.keys().isdisjoint(("tools", "function"))


class BudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be used before further turns are refused: by each user, by each tenant, by each agent of a tenant; and
    by single agents, by id, in the place of `agent`."""

    user: Budget = Budget()
    tenant: Budget = Budget()
    agent: Budget = Budget()
    agents: dict[str, Budget] = {}


class JwtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bearer tokens from an identity provider. Exactly one key: a shared `secret`, a `public_key_file` in PEM, or
    `jwks` (file or URL). A claim can be a path, such as `realm_access.roles`. `tenant` and `role` are the defaults for
    tokens without these claims; a token with neither claim nor default is rejected."""

    secret: str | None = None
    public_key_file: str | None = None
    jwks: str | None = None
    issuer: str | None = None
    audience: str | None = None
    leeway_seconds: float = 30.0
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    role_claim: str = "role"
    tenant: str | None = None
    role: TokenRole | None = None

    def __repr__(self) -> str:
        return f"<JWT of {self.issuer or 'any issuer'}>"


class RateLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests per minute over all workers; 0 means no limit. Not applied without authentication. A request on behalf
    of a user counts against that user's `per_token` and against `per_acting_token`."""

    per_token: int = 600
    per_acting_token: int = 6_000
    per_address: int = 1_200


_Seconds = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class ConnectionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one client may occupy before its request is known, in each process. `total` is also bounded by three
    quarters of the descriptors that the process may open. `per_address` does not count trusted proxies; behind one it
    counts the open requests of each client. A body has `body_seconds`, and a second more for each
    `body_bytes_per_second` that arrived."""

    total: _Count = 20_000
    per_address: _Count = 1_000
    head_seconds: _Seconds = 10.0
    head_bytes: _Count = 65_536
    headers: _Count = 100
    url_bytes: _Count = 16_384
    body_seconds: _Seconds = 30.0
    body_bytes_per_second: _Count = 500
    write_seconds: _Seconds = 60.0


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP service. `authentication` requires an API token from every caller, or a JWT if `jwt` is set; `jwt`
    alone requires one as well. `origins` are the web pages that may call the service from another origin. `proxies`
    are the addresses or networks whose `X-Forwarded-For` is trusted."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 8300
    workers: int = 1
    role: Literal["all", "web"] = "all"
    """`web`: accepts requests and streams replies; turns and deliveries are left to `threadline worker`."""
    authentication: bool = False
    jwt: JwtSettings | None = None
    rates: RateLimits = RateLimits()
    connections: ConnectionLimits = ConnectionLimits()
    proxies: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    oldest_ai_sdk: Annotated[int, msgspec.Meta(ge=5, le=6)] = 6
    body_bytes: int = 1_048_576
    webhook_bytes: int = 4_194_304
    import_bytes: int = 67_108_864
    heartbeat_seconds: float = 15.0
    lease_seconds: float = 30.0
    recovery_seconds: float = 10.0
    grace_seconds: float = 20.0
    handover_seconds: float = 300.0
    log_format: Literal["human", "json"] = "human"

    @property
    def requires_authentication(self) -> bool:
        return self.authentication or self.jwt is not None


class MatrixSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Matrix bot. Set its password or access token in the environment: `THREADLINE_MATRIX__PASSWORD` or
    `THREADLINE_MATRIX__TOKEN`. Without `users` and `servers` it answers only users of its own homeserver."""

    homeserver: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    folder: str = ""
    """Stores access token, encryption keys and sync position. Default: `matrix` beside the default database."""
    device_name: str = "Threadline"
    users: tuple[str, ...] = ()
    """Full ids of users it answers, on any homeserver."""
    servers: tuple[str, ...] = ()
    """Homeservers whose users it answers; `*` is every server."""
    auto_link: bool = False
    """Whether an unlinked sender becomes a new user, named by their Matrix id."""
    encrypt: bool = False
    """Whether the bot creates encrypted rooms."""
    with_service: bool = False
    """Whether `threadline serve` runs the bot. Only one process at a time can run it."""
    edit_seconds: float = 1.0
    sync_seconds: float = 30.0
    recovery_seconds: float = 5.0

    def __repr__(self) -> str:
        return f"<the Matrix bot {self.user} on {self.homeserver}>"


class VaultSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys that encrypt stored secrets, each with an id: credentials of platforms, keys and tokens of tenants'
    agents. `key` is the id of the key for new secrets; it may be left out if there is one key."""

    keys: dict[str, str] = {}
    key: str = ""

    def __repr__(self) -> str:
        return f"<vault with keys {sorted(self.keys)}>"


class TracingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenTelemetry traces. `content` adds the texts of messages to them."""

    enabled: bool = False
    content: bool = False


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    database: str = ""
    database_replica: str = ""
    """A streaming replica of `database`: of the one that is named in the same place."""
    tenant: str = "local"
    user: str = "local"
    agent: str = "rehearsal"
    replay_seconds: float = 3600.0
    process_folder: str = ""
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    masking: MaskingSettings = MaskingSettings()
    guard: GuardSettings = GuardSettings()
    windows: WindowSettings = WindowSettings()
    compaction: CompactionSettings = CompactionSettings()
    titles: TitleSettings = TitleSettings()
    agents: dict[str, AgentSettings] = {}
    mcp: dict[str, McpServer] = {}
    prices: dict[str, Price] = {}
    """For a million tokens, by model (`gpt-5`) or provider and model (`openai/gpt-5`), in `currency`."""
    currency: str = "USD"
    budgets: BudgetSettings = BudgetSettings()
    service: ServiceSettings = ServiceSettings()
    sign_in: SignInSettings = SignInSettings()
    oidc: dict[str, OidcProvider] = {}
    vault: VaultSettings = VaultSettings()
    channels: ChannelsSettings = ChannelsSettings()
    matrix: MatrixSettings = MatrixSettings()
    receipts: ReceiptSettings = ReceiptSettings()
    retention: RetentionSettings = RetentionSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    tracing: TracingSettings = TracingSettings()


def load(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Reads the settings. SettingsInvalid names the file or the variable, the key, the value and what is allowed."""
    env = os.environ if environ is None else environ
    found = settings_file(path, env)
    tree: dict[str, Any] = _read(found) if found else {}
    named = tree.get("database")
    _merge_environment(tree, env)
    tree |= {key: value for key, value in (overrides or {}).items() if value is not None}
    if tree.get("database") != named and "THREADLINE_DATABASE_REPLICA" not in env:
        # The replica that the file names is that of another database.
        tree.pop("database_replica", None)
    try:
        settings = msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as exc:
        rejection = explain(exc, tree, Settings)
        if _variable(rejection.path) in env:
            raise SettingsInvalid(rejection.describe(_variable)) from exc
        raise SettingsInvalid(f"{found or 'options'}: {rejection.describe()}") from exc
    return settings if settings.database else msgspec.structs.replace(settings, database=str(default_database(env)))


def code_folders(path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Where a command finds the Python modules that its settings name: the folder of the settings file, and the working
    directory, unless the file is the user's own one, which holds in every directory: those are not all trusted."""
    env = os.environ if environ is None else environ
    found = settings_file(path, env)
    if found is None:
        return []
    folders = [found.resolve().parent] if found == user_settings_file(env) else [found.resolve().parent, Path.cwd()]
    return list(dict.fromkeys(folders))


def _variable(path: Sequence[str]) -> str:
    return _PREFIX + "__".join(path).upper()


def default_matrix_folder(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_DATA_HOME", ".local/share") / "matrix"


def default_database(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_DATA_HOME", ".local/share") / "threadline.sqlite3"


def _home(environ: Mapping[str, str], variable: str, default: str) -> Path:
    base = environ.get(variable)
    return (Path(base) if base else Path(environ.get("HOME", "~")).expanduser() / default) / "threadline"


def user_settings_file(environ: Mapping[str, str]) -> Path:
    return _home(environ, "XDG_CONFIG_HOME", ".config") / "threadline.toml"


def settings_file(path: Path | None, env: Mapping[str, str]) -> Path | None:
    """The file that `load` reads, if there is one. SettingsInvalid for a named file that does not exist."""
    named = path or (Path(env[_FILE_VARIABLE]) if env.get(_FILE_VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            raise SettingsInvalid(f"no settings file {named}")
        return named
    candidates = (Path("threadline.toml"), user_settings_file(env))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise SettingsInvalid(f"{path} is not valid TOML: {exc}") from exc
    except OSError as exc:
        raise SettingsInvalid(f"cannot read {path}: {exc.strerror}") from exc


def _merge_environment(tree: dict[str, Any], env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name.startswith(_PREFIX) or name in _OTHER_VARIABLES or name.startswith(_BRIDGE_VARIABLES):
            continue
        *sections, key = name[len(_PREFIX) :].lower().split("__")
        target = tree
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise SettingsInvalid(f"unknown setting {name}: `{section}` is a value, not a section")
        target[key] = _split(value) if _is_list([*sections, key]) else value


def _is_list(path: Sequence[str]) -> bool:
    """Whether the setting at this path is a list."""
    kind: Any = Settings
    for key in path:
        if typing.get_origin(kind) is dict:
            kind = typing.get_args(kind)[1]
        else:
            fields = typing.get_type_hints(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else {}
            kind = fields.get(key)
    return typing.get_origin(kind) is tuple


def _split(value: str) -> list[str]:
    """`a, b` or, for texts that contain commas, `["a", "b"]`."""
    if value.startswith('["'):
        try:
            return msgspec.json.decode(value, type=list[str])
        except msgspec.DecodeError:
            # Then it is no array but a text that begins like one, such as a regular expression.
            pass
    return [part for part in map(str.strip, value.split(",")) if part]
