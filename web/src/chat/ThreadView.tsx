/** One thread: loads its newest messages, or those around a search result; then shows them, or says that it cannot. */
import { useEffect, useState } from "preact/hooks";
import { call, errorText, type History, threadPath } from "../api";
import { openNew, type Route } from "../router";
import { isListOpen } from "../shell";
import { Conversation } from "./Conversation";
import { storedDraft } from "./drafts";

export const PAGE = 60;
const BEFORE = 20;

type Loading =
  | { state: "loading" }
  | { state: "missing" }
  | { state: "failed"; why: string }
  | { state: "ready"; history: History };

export function ThreadView({ at }: { at: Route }) {
  // Which route it began with decides: a new thread is not loaded again when it gets its address.
  const [begun] = useState(at);
  const [loading, setLoading] = useState<Loading>(
    begun.isNew ? { state: "ready", history: { stateKey: begun.stateKey, messages: [] } } : { state: "loading" },
  );
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (begun.isNew) return;
    const asking = new AbortController();
    load(begun, asking.signal).then(
      (history) => {
        // A thread that was begun here has a link before its first message is stored, and perhaps a draft.
        const isThere = history.id !== undefined || storedDraft(begun.stateKey) !== "";
        setLoading(isThere ? { state: "ready", history } : { state: "missing" });
      },
      (error: unknown) => asking.signal.aborted || setLoading({ state: "failed", why: errorText(error) }),
    );
    return () => asking.abort();
  }, [begun, tries]);

  if (loading.state === "loading") return <Waiting />;
  const tryAgain = () => setTries(tries + 1);
  if (loading.state === "missing")
    return (
      <Failure title="There is no such thread" onTryAgain={tryAgain}>
        It may have been deleted, or it belongs to another user.
      </Failure>
    );
  if (loading.state === "failed")
    return (
      <Failure title="This thread could not be loaded" onTryAgain={tryAgain}>
        {loading.why}
      </Failure>
    );
  return <Conversation initial={loading.history} seq={begun.seq} />;
}

async function load(begun: Route, signal: AbortSignal): Promise<History> {
  const path = threadPath(begun.stateKey);
  const history = await call<History>("GET", `${path}?tail=${PAGE}`, undefined, signal);
  const first = history.firstSeq ?? 0;
  if (begun.seq === undefined || begun.seq >= first) return history;
  const from = Math.max(0, begun.seq - BEFORE);
  const last = Math.min(from + PAGE, first) - 1;
  const window = await call<History>("GET", `${path}?first=${from}&last=${last}`, undefined, signal);
  if (last < first - 1) return { ...history, firstSeq: from, messages: window.messages, isPast: true };
  return { ...history, firstSeq: from, messages: [...window.messages, ...history.messages] };
}

function Failure({ title, children, onTryAgain }: { title: string; children: string; onTryAgain: () => void }) {
  return (
    <div class="middle" role="alert">
      <h2>{title}</h2>
      <p>{children}</p>
      <div class="row-end">
        <button type="button" class="button only-narrow" onClick={() => isListOpen.set(true)}>
          Threads
        </button>
        <button type="button" class="button" onClick={onTryAgain}>
          Try again
        </button>
        <button type="button" class="button button-primary" onClick={openNew}>
          New thread
        </button>
      </div>
    </div>
  );
}

function Waiting() {
  return (
    <div class="conversation" role="status" aria-label="Loading the thread">
      <div class="messages">
        {[52, 70, 45].map((width) => (
          <div key={width} class="row-ghost">
            <span class={`ghost ghost-${width}`} />
            <span class="ghost ghost-70" />
          </div>
        ))}
      </div>
    </div>
  );
}
