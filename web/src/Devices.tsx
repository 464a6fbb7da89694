/** Where the user is signed in; each session can be ended here. */
import { useEffect, useState } from "preact/hooks";
import { endSession, type SignInInfo } from "./access";
import { call, errorText } from "./api";
import { briefly } from "./times";
import { Dialog } from "./ui/Dialog";
import { IconButton } from "./ui/IconButton";
import { toast } from "./ui/toasts";

export function Devices({ onClose }: { onClose: () => void }) {
  const [devices, setDevices] = useState<SignInInfo[] | null>(null);
  const attempt = (work: Promise<unknown>) => {
    work.catch((error: unknown) => toast(errorText(error), { kind: "error" }));
  };
  const refresh = () => call<{ signIns: SignInInfo[] }>("GET", "sign-ins").then(({ signIns }) => setDevices(signIns));
  useEffect(() => attempt(refresh()), []);
  const revoke = (device: SignInInfo) =>
    attempt(call<void>("DELETE", `sign-ins/${encodeURIComponent(device.id)}`).then(refresh));
  return (
    <Dialog title="Devices" onClose={onClose}>
      {devices && !devices.length && <p>You are signed in with a token, and on no other device.</p>}
      <ul class="saves" aria-label="Devices">
        {devices?.map((device) => (
          <li key={device.id}>
            <span class="saves-name">
              {device.openedAt ? device.device || "Unknown device" : "A sign-in link that was not used"}
              {device.isCurrent ? " (this device)" : `, ${briefly(device.lastSeenAt ?? device.createdAt)}`}
            </span>
            {!device.isCurrent && (
              <IconButton icon="close" label="Sign out this device" onClick={() => revoke(device)} />
            )}
          </li>
        ))}
      </ul>
      <div>
        <button type="button" class="button" onClick={() => attempt(endSession(true))}>
          Sign out everywhere
        </button>
      </div>
    </Dialog>
  );
}
