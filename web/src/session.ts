/**
 * Who is signed in: a token in sessionStorage, gone with the tab, never in an address. A service without
 * authentication never asks for one.
 */
import { Cell } from "./cell";

const KEY = "threadline.token";

export const signInWanted = new Cell(false);

/** Whether the token that was held was not taken. */
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
  sessionStorage.removeItem(KEY);
  signInWanted.set(true);
}

export function authorization(): Record<string, string> {
  const held = token();
  return held ? { authorization: `Bearer ${held}` } : {};
}
