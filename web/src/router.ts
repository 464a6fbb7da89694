/** Addresses: `/` is a new thread, `/t/{stateKey}` one that is there. Relative to where the page is mounted. */
import { Cell } from "./cell";

export interface Route {
  stateKey: string;
  isNew: boolean;
  /** The message to show, if one was asked for. */
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

/** The new thread has its first message: its address is one to come back to. */
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
