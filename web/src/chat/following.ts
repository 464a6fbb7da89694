/** Long polling for changes of the thread while the page is visible, and whether the service is reachable. */
import { useEffect, useRef } from "preact/hooks";
import { ApiError, call, type Head, threadPath } from "../api";
import { Cell } from "../cell";
import { signInWanted } from "../session";

const WAIT_SECONDS = 20;
const SLOWEST_MS = 15_000;

export const isReachable = new Cell(true);

export function useFollowing(stateKey: string, onHead: (head: Head) => void): void {
  const latest = useRef(onHead);
  latest.current = onHead;
  useEffect(() => {
    const ending = new AbortController();
    void follow(stateKey, (head) => latest.current(head), ending.signal);
    return () => ending.abort();
  }, [stateKey]);
}

async function follow(stateKey: string, onHead: (head: Head) => void, ending: AbortSignal): Promise<void> {
  let seen = "";
  let failures = 0;
  while (!ending.aborted) {
    await whenLookedAt(ending);
    // After a failure the first request does not wait: its response shows that the service is back.
    const query = `wait=${failures ? 0 : WAIT_SECONDS}${seen && `&seen=${seen}`}`;
    try {
      const head = await ask(`${threadPath(stateKey)}/head?${query}`, ending);
      failures = 0;
      isReachable.set(true);
      if (head && !ending.aborted) {
        seen = head.version;
        onHead(head);
      }
    } catch (error) {
      if (ending.aborted) return;
      failures += 1;
      isReachable.set(error instanceof ApiError);
      await pause(Math.min(SLOWEST_MS, 500 * 2 ** failures), ending);
    }
  }
}

/** Aborts the waiting request when the machine goes offline: no response would come. */
async function ask(path: string, ending: AbortSignal): Promise<Head | undefined> {
  const asking = new AbortController();
  const giveUp = () => asking.abort();
  ending.addEventListener("abort", giveUp, { once: true });
  window.addEventListener("offline", giveUp);
  try {
    return await call<Head | undefined>("GET", path, undefined, asking.signal);
  } finally {
    ending.removeEventListener("abort", giveUp);
    window.removeEventListener("offline", giveUp);
  }
}

/** A hidden page keeps no connection open: browsers allow few per server, and all tabs share them. */
async function whenLookedAt(ending: AbortSignal): Promise<void> {
  while ((document.visibilityState === "hidden" || signInWanted.get()) && !ending.aborted) await pause(1_000, ending);
}

function pause(ms: number, ending: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", done);
      window.removeEventListener("online", done);
      resolve();
    };
    const timer = window.setTimeout(done, ms);
    document.addEventListener("visibilitychange", done);
    window.addEventListener("online", done);
    ending.addEventListener("abort", done, { once: true });
  });
}
