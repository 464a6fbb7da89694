/** What follows on the end of a reply: the page shows what is stored, and sends what was queued. */
import { useEffect, useRef } from "preact/hooks";
import type { History } from "../api";
import { useCell } from "../cell";
import { settle } from "../router";
import { refresh as refreshThreads } from "../threads/store";
import { isReachable } from "./following";

const GO_ON_AFTER_MS = 1_000;

interface Settling {
  status: string;
  isThere: boolean;
  refresh: () => Promise<History | null>;
  goOn: () => void;
  sendQueued: (fresh: History) => void;
  stateKey: string;
}

/**
 * Shows what is stored after each answer or failure, and when the service is reachable again. A turn that is still
 * running, because only the connection broke or a deploy moved it, is resumed after a moment.
 */
export function useSettling({ status, isThere, refresh, goOn, sendQueued, stateKey }: Settling): void {
  const before = useRef(status);
  const goingOn = useRef(0);
  const isOnline = useCell(isReachable);
  // While the service cannot be reached, the messages stay on the page.
  const showStored = () =>
    void refresh().then(
      (fresh) => {
        window.clearTimeout(goingOn.current);
        if (fresh?.active) goingOn.current = window.setTimeout(goOn, GO_ON_AFTER_MS);
        else if (fresh) sendQueued(fresh);
      },
      () => undefined,
    );
  useEffect(() => () => window.clearTimeout(goingOn.current), []);
  useEffect(() => {
    if (isOnline && status === "error") showStored();
  }, [isOnline]);
  useEffect(() => {
    const was = before.current;
    before.current = status;
    if (status === "submitted" || status === "streaming") {
      if (isThere) settle(stateKey);
      if (status === "streaming" && isThere) void refreshThreads();
      return;
    }
    if (was === status || (was !== "submitted" && was !== "streaming" && status !== "error")) return;
    showStored();
  }, [status]);
}
