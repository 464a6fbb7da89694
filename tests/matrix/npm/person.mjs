// One user of matrix-js-sdk with its Rust crypto, as Element runs it. Steps come as JSON lines, each answered by one line.
import { createInterface } from "node:readline";
import * as sdk from "matrix-js-sdk";
import { logger } from "matrix-js-sdk/lib/logger.js";
import { decodeRecoveryKey } from "matrix-js-sdk/lib/crypto-api/recovery-key.js";
import { VerificationPhase, VerificationRequestEvent, VerifierEvent } from "matrix-js-sdk/lib/crypto-api/verification.js";
import { AllDevicesIsolationMode, OnlySignedDevicesIsolationMode } from "matrix-js-sdk/lib/crypto-api/index.js";

logger.setLevel("silent");
for (const name of ["log", "info", "debug", "warn", "error", "trace"]) console[name] = () => {};

let client;
let crypto;

function shown(event) {
  return {
    id: event.getId(),
    sender: event.getSender(),
    body: event.replacingEvent()?.getContent()["m.new_content"]?.body ?? event.getContent().body ?? null,
    unreadable: event.isDecryptionFailure() ? String(event.decryptionFailureReason) : null,
  };
}

const steps = {
  async begin(url, user, password, onlySigned) {
    const login = await sdk.createClient({ baseUrl: url }).loginRequest({
      type: "m.login.password",
      identifier: { type: "m.id.user", user },
      password,
    });
    client = sdk.createClient({
      baseUrl: url, userId: login.user_id, deviceId: login.device_id, accessToken: login.access_token,
      verificationMethods: ["m.sas.v1"],
    });
    await client.initRustCrypto({ useIndexedDB: false });
    crypto = client.getCrypto();
    crypto.setDeviceIsolationMode(onlySigned ? new OnlySignedDevicesIsolationMode() : new AllDevicesIsolationMode(false));
    await crypto.bootstrapCrossSigning({
      authUploadDeviceSigningKeys: (make) =>
        make({ type: "m.login.password", identifier: { type: "m.id.user", user: login.user_id }, password }),
    });
    const synced = new Promise((resolve) => client.on("sync", (state) => state === "SYNCING" && resolve()));
    await client.startClient({ initialSyncLimit: 50 });
    await synced;
    return { device: login.device_id };
  },
  // Another device of an account whose secret storage exists already.
  async recover(url, user, password, recoveryKey) {
    const login = await sdk.createClient({ baseUrl: url }).loginRequest({
      type: "m.login.password",
      identifier: { type: "m.id.user", user },
      password,
    });
    client = sdk.createClient({
      baseUrl: url, userId: login.user_id, deviceId: login.device_id, accessToken: login.access_token,
      cryptoCallbacks: {
        getSecretStorageKey: async ({ keys }) => [Object.keys(keys)[0], decodeRecoveryKey(recoveryKey)],
      },
    });
    await client.initRustCrypto({ useIndexedDB: false });
    crypto = client.getCrypto();
    const synced = new Promise((resolve) => client.on("sync", (state) => state === "SYNCING" && resolve()));
    await client.startClient({ initialSyncLimit: 50 });
    await synced;
    await crypto.userHasCrossSigningKeys(login.user_id, true);
    await crypto.bootstrapCrossSigning({});
    await crypto.loadSessionBackupPrivateKeyFromSecretStorage();
    const { total, imported } = await crypto.restoreKeyBackup();
    return { total, imported };
  },
  async own() {
    await crypto.getUserDeviceInfo([client.getUserId()], true);
    const status = await crypto.getDeviceVerificationStatus(client.getUserId(), client.getDeviceId());
    return { signed: status?.signedByOwner ?? false };
  },
  async room(bot) {
    const { room_id } = await client.createRoom({
      invite: [bot],
      is_direct: true,
      preset: "trusted_private_chat",
      initial_state: [{ type: "m.room.encryption", state_key: "", content: { algorithm: "m.megolm.v1.aes-sha2" } }],
    });
    return { room: room_id };
  },
  async say(room, body) {
    return { event: (await client.sendTextMessage(room, body)).event_id };
  },
  async rooms() {
    return { rooms: client.getRooms().map((each) => [each.roomId, each.getMyMembership(), each.name]) };
  },
  async join(room) {
    await client.joinRoom(room);
    return {};
  },
  async timeline(room) {
    const events = client.getRoom(room)?.getLiveTimeline().getEvents() ?? [];
    const messages = events.filter((each) => ["m.room.message", "m.room.encrypted"].includes(each.getType()));
    return {
      encrypted: client.getRoom(room)?.hasEncryptionStateEvent() ?? false,
      messages: messages.filter((each) => each.getRelation()?.rel_type !== "m.replace").map(shown),
    };
  },
  async trust(bot) {
    const status = await crypto.getUserVerificationStatus(bot);
    const devices = [...((await crypto.getUserDeviceInfo([bot], true)).get(bot)?.keys() ?? [])];
    const signed = await Promise.all(devices.map((each) => crypto.getDeviceVerificationStatus(bot, each)));
    return {
      hasIdentity: await crypto.userHasCrossSigningKeys(bot, true),
      verified: status.isCrossSigningVerified(),
      signed: signed.map((each) => each.signedByOwner),
      verifiedDevices: signed.map((each) => each.isVerified()),
    };
  },
  // Asks in a room, or a device. `matches` is what the person says when they have compared.
  async verify(user, room, device, matches) {
    const asked = room ? crypto.requestVerificationDM(user, room) : crypto.requestDeviceVerification(user, device);
    const request = await asked;
    const ready = new Promise((resolve) => {
      const look = () => request.phase === VerificationPhase.Ready && resolve();
      request.on(VerificationRequestEvent.Change, look);
      look();
    });
    await ready;
    const verifier = await request.startVerification("m.sas.v1");
    const shown = new Promise((resolve) => verifier.on(VerifierEvent.ShowSas, resolve));
    const verified = verifier.verify().then(() => "verified", (error) => String(error.message));
    const sas = await shown;
    if (matches) await sas.confirm();
    else sas.mismatch();
    return { emoji: sas.sas.emoji, decimal: sas.sas.decimal, end: await verified };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line);
  let answer;
  try {
    answer = await steps[name](...args);
  } catch (error) {
    answer = { failed: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
