/** Sign-in with a session cookie: how it is offered, links that work once, and the devices of the user. */
import { address, call } from "./api";
import { Cell } from "./cell";
import { removeDrafts } from "./chat/drafts";
import { signInWanted, signOut, token } from "./session";

export interface Provider {
  name: string;
  title: string;
  path: string;
}

interface SignInOptions {
  isRequired: boolean;
  providers: Provider[];
}

export interface SignInInfo {
  id: string;
  method: string;
  createdAt: string;
  openedAt?: string;
  lastSeenAt?: string;
  device?: string;
  isCurrent?: boolean;
}

const LINK = "#sign-in=";

/** Null until they are loaded. */
export const signInOptions = new Cell<SignInOptions | null>(null);

export function loadSignInOptions(): void {
  call<SignInOptions>("GET", "sign-in").then(signInOptions.set, () => undefined); // Then only a token can be given.
}

/** Where a provider's button leads; afterwards the browser comes back here. */
export function providerHref(provider: Provider): string {
  const url = new URL(provider.path, document.baseURI);
  url.searchParams.set("next", location.pathname + location.search);
  return url.href;
}

/** The secret of the link that opened this page. It is in the fragment, which is sent to no server. */
export function linkSecret(): string | null {
  return location.hash.startsWith(LINK) ? location.hash.slice(LINK.length) : null;
}

if (linkSecret()) signInWanted.set(true);

/** Signs in. The page is loaded again, because it may show what belongs to another user. */
export async function openLink(secret: string): Promise<void> {
  await call("POST", "sign-in/link", { link: secret });
  restart();
}

/** Ends the session of this browser, or of all devices. */
export async function endSession(everywhere: boolean): Promise<void> {
  if (token()) {
    signOut();
    return;
  }
  const answer = await fetch(address("sign-out"), {
    method: "POST",
    body: JSON.stringify({ everywhere }),
    headers: { "content-type": "application/json" },
  });
  // 401: the session is over already.
  if (!answer.ok && answer.status !== 401) throw new Error("You are still signed in. Try again.");
  removeDrafts();
  restart();
}

function restart(): void {
  location.replace(document.baseURI);
}
