/** Places that the thread is bound to, and the user's linked accounts on messaging platforms. */
import { useEffect, useState } from "preact/hooks";
import { call, errorText, type Link, type LinkCode, type Place, threadPath } from "../api";
import type { Conversing } from "../chat/conversation";
import { briefly } from "../times";
import { CopyButton } from "../ui/CopyButton";
import { IconButton } from "../ui/IconButton";
import { toast } from "../ui/toasts";

export function Channels({ talk }: { talk: Conversing }) {
  return (
    <>
      <Places talk={talk} />
      <Links />
    </>
  );
}

function Places({ talk }: { talk: Conversing }) {
  const [places, setPlaces] = useState<Place[]>([]);
  const { stateKey, id } = talk.thread;
  useEffect(() => {
    if (!id) return;
    call<{ places: Place[] }>("GET", `${threadPath(stateKey)}/places`).then(
      (answer) => setPlaces(answer.places),
      () => undefined, // Hidden, as if nothing were bound.
    );
  }, [stateKey, id, talk.facts]);
  if (!places.length) return null;
  return (
    <section>
      <h3>Places</h3>
      <ul class="places" aria-label="Places where this thread continues">
        {places.map((place) => (
          <li key={`${place.surface} ${place.place}`}>
            <span class="surface">{place.surface}</span> {place.label ?? place.place}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Hidden if the service has no channels. */
export function Links() {
  const [links, setLinks] = useState<Link[] | null>(null);
  const [code, setCode] = useState<LinkCode | null>(null);
  const refresh = () => {
    call<{ links: Link[] }>("GET", "channels/links").then(
      (answer) => setLinks(answer.links),
      () => setLinks(null),
    );
  };
  useEffect(refresh, []);
  if (!links) return null;
  const attempt = (work: Promise<void>) => work.catch((error: unknown) => toast(errorText(error), { kind: "error" }));
  const make = () => void attempt(call<LinkCode>("POST", "channels/links/code", {}).then(setCode));
  const unlink = ({ platform, platformUserId }: Link) => {
    const which = new URLSearchParams({ platform, platformUserId });
    void attempt(call<void>("DELETE", `channels/links?${which}`).then(refresh));
  };
  return (
    <section>
      <h3>Linked accounts</h3>
      {links.length > 0 && (
        <ul class="saves" aria-label="Linked accounts">
          {links.map((link) => (
            <li key={`${link.platform} ${link.platformUserId}`}>
              <span class="saves-name">
                <span class="surface">{link.platform}</span> {link.platformUserId}
                {link.state === "revoked" && " (blocked)"}
              </span>
              <IconButton icon="close" label={`Unlink ${link.platformUserId}`} onClick={() => unlink(link)} />
            </li>
          ))}
        </ul>
      )}
      {code ? (
        <Code code={code} />
      ) : (
        <>
          <p>Continue your threads in Slack, Telegram, WhatsApp or Matrix.</p>
          <div>
            <button type="button" class="button" onClick={make}>
              Create a link code
            </button>
          </div>
        </>
      )}
    </section>
  );
}

function Code({ code }: { code: LinkCode }) {
  const words = `!link ${code.code}`;
  return (
    <div role="status">
      <p>Send this to the bot. It works once, until {briefly(code.expiresAt)}.</p>
      <p class="link-code">
        <code>{words}</code>
        <CopyButton text={words} label="Copy the code" />
      </p>
    </div>
  );
}
