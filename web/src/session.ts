/**
 * The token of this tab, in sessionStorage and never in a URL. People who signed in have a session cookie instead, which
 * no script can read, and a service without authentication requires neither.
 */
import { Cell } from "./cell";
import { removeDrafts } from "./chat/drafts";

const KEY = "threadline.token";

export const signInWanted = new Cell(false);

/** Whether the service refused the token. */
export const isRefused = new Cell(false);

export function token(): string | null {
  return sessionStorage.getItem(KEY);
}

export function askToSignIn(): void {
  if (token()) isRefused.set(true);
  sessionStorage.removeItem(KEY);
  signInWanted.set(true);
}

export function signIn(given: string): void {
  sessionStorage.setItem(KEY, given);
  isRefused.set(false);
  signInWanted.set(false);
}

export function signOut(): void {
  removeDrafts();
  sessionStorage.removeItem(KEY);
  signInWanted.set(true);
}

export function authorization(): Record<string, string> {
  const held = token();
  return held ? { authorization: `Bearer ${held}` } : {};
}
