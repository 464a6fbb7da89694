/**
 * What is written and not sent yet, by thread. It is kept in sessionStorage, as the token is: it survives navigation and
 * a reload, and another user of this browser does not find it.
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { route } from "../router";

const PREFIX = "threadline.draft.";

export interface Written {
  draft: string;
  /** Waits for the end of the running reply. After a reload it is part of the draft: nothing is sent unseen. */
  queued: string;
}

export interface Writing extends Written {
  /** The newest values, for callbacks that began earlier. */
  held: { current: Written };
  change: (next: Partial<Written>) => void;
}

export function useWriting(stateKey: string): Writing {
  const [written, setWritten] = useState<Written>(() => ({ draft: storedDraft(stateKey), queued: "" }));
  const held = useRef(written);
  const change = useCallback(
    (next: Partial<Written>) => {
      held.current = { ...held.current, ...next };
      storeDraft(stateKey, paragraphs(held.current.queued, held.current.draft));
      setWritten(held.current);
    },
    [stateKey],
  );
  useEffect(
    () => () => {
      held.current = { draft: paragraphs(held.current.queued, held.current.draft), queued: "" };
    },
    [],
  );
  return { ...written, held, change };
}

export function paragraphs(...texts: string[]): string {
  return texts.filter(Boolean).join("\n\n");
}

export function storedDraft(stateKey: string): string {
  return sessionStorage.getItem(keyOf(stateKey)) ?? "";
}

function storeDraft(stateKey: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(keyOf(stateKey), text);
    else sessionStorage.removeItem(keyOf(stateKey));
  } catch {
    // The browser's storage is full: the draft is kept only until the thread is left.
  }
}

/** All new threads share one draft: their keys are random. */
function keyOf(stateKey: string): string {
  const at = route.get();
  return PREFIX + (at.isNew && at.stateKey === stateKey ? "" : stateKey);
}

export function removeDrafts(): void {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
}
