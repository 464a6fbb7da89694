/** The summary that the agent is shown in the place of older messages, edited in place. */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { call, errorText, type Summary as Stored, threadPath } from "../api";
import type { Conversing } from "../chat/conversation";
import { exactly } from "../times";
import { toast } from "../ui/toasts";

export function Summary({ talk }: { talk: Conversing }) {
  const { stateKey, messageCount } = talk.thread;
  const [stored, setStored] = useState<Stored>({});
  const [text, setText] = useState("");
  const [isWriting, setIsWriting] = useState(false);
  const fieldId = useId();
  const path = `${threadPath(stateKey)}/summary`;
  const shown = useRef("");
  const show = (found: Stored, keepsChanges = false) => {
    const [before, now] = [shown.current, found.text ?? ""];
    setText((written) => (keepsChanges && written !== before ? written : now));
    shown.current = now;
    setStored(found);
  };
  // Again when the thread has grown: a summary is written by itself when the window is nearly full.
  useEffect(() => {
    let isCurrent = true;
    call<Stored>("GET", path).then(
      // Text that the user has begun to change is not overwritten.
      (found) => isCurrent && show(found, true),
      () => undefined, // Shown as missing; writing one reports the error.
    );
    return () => {
      isCurrent = false;
    };
  }, [path, messageCount]);

  const write = async () => {
    setIsWriting(true);
    try {
      const made = await call<Stored>("POST", `${threadPath(stateKey)}/compact`);
      if (made.text === undefined) toast("Nothing to summarise: this thread is short enough.");
      else show(made);
    } catch (error) {
      toast(errorText(error), { kind: "error" });
    } finally {
      setIsWriting(false);
    }
  };
  const save = async () => {
    try {
      const now = await call<Stored>("GET", path);
      if (now.createdAt !== stored.createdAt) {
        show(now, true);
        toast("The summary was written again meanwhile. Cancel shows it; Save replaces it.", { kind: "error" });
        return;
      }
      show(await call<Stored>("PUT", path, { text }));
      toast("The agent is shown your text from now on.");
    } catch (error) {
      toast(errorText(error), { kind: "error" });
    }
  };
  if (stored.text === undefined) {
    return (
      <section>
        <h3>Summary</h3>
        <p>The agent is shown every message. Older ones are summarised when there is no more room.</p>
        <div>
          <button type="button" class="button" disabled={talk.isBusy || isWriting} onClick={() => void write()}>
            {isWriting ? "Summarising…" : "Summarise now"}
          </button>
        </div>
      </section>
    );
  }
  return (
    <section>
      <h3>
        <label for={fieldId}>Summary</label>
      </h3>
      <p>{explain(stored)}</p>
      <textarea id={fieldId} rows={8} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {text !== stored.text && (
        <div class="row-end">
          <button type="button" class="button" onClick={() => setText(stored.text ?? "")}>
            Cancel
          </button>
          <button type="button" class="button button-primary" disabled={!text.trim()} onClick={() => void save()}>
            Save
          </button>
        </div>
      )}
    </section>
  );
}

function explain({ seq = 0, source, model, createdAt }: Stored): string {
  const count = seq + 1;
  const covered = count === 1 ? "first message" : `first ${count.toLocaleString()} messages`;
  const writer =
    source === "person"
      ? "edited by you"
      : source === "extract"
        ? "their beginnings, because no model could write a summary"
        : `written by ${model ?? "the agent"}`;
  const when = createdAt ? `, ${exactly(createdAt)}` : "";
  return `In the place of the ${covered} the agent is shown this (${writer}${when}). No message is deleted.`;
}
