/** URLs: `/` is a new thread, `/t/{stateKey}` an existing one. Relative to where the page is mounted. */
import { Cell } from "./cell";

export interface Route {
  stateKey: string;
  isNew: boolean;
  /** The message to scroll to. */
  seq?: number;
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

export const route = new Cell<Route>(read());

window.addEventListener("popstate", () => route.set(read()));

function read(): Route {
  const base = new URL(document.baseURI).pathname;
  const path = location.pathname.slice(base.length);
  if (path.startsWith("t/") && path.length > 2) return { stateKey: decoded(path.slice(2)), isNew: false };
  return { stateKey: newKey(), isNew: true };
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

export function hrefOf(stateKey: string): string {
  return new URL(`t/${encodeURIComponent(stateKey)}`, document.baseURI).pathname;
}

export function open(stateKey: string, seq?: number): void {
  history.pushState(null, "", hrefOf(stateKey));
  route.set(seq === undefined ? { stateKey, isNew: false } : { stateKey, isNew: false, seq });
}

export function openNew(): void {
  history.pushState(null, "", new URL(document.baseURI).pathname);
  route.set({ stateKey: newKey(), isNew: true });
}

/** A new thread gets its URL with its first message. */
export function settle(stateKey: string): void {
  if (route.get().stateKey === stateKey && route.get().isNew) {
    history.replaceState(null, "", hrefOf(stateKey));
    route.set({ stateKey, isNew: false });
  }
}

function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => LETTERS[byte % LETTERS.length]).join("");
}
