/** The context that the user pinned for an agent, edited in place. The agent gets it first in every turn. */
import { useEffect, useId, useState } from "preact/hooks";
import { useAgents } from "../agents";
import { ApiError, call, errorText } from "../api";
import { toast } from "../ui/toasts";

export function Pinned({ agentId }: { agentId: string | undefined }) {
  const byDefault = useAgents()?.default;
  const id = agentId ?? byDefault;
  const [stored, setStored] = useState("");
  const [text, setText] = useState("");
  const fieldId = useId();
  const path = `agents/${encodeURIComponent(id ?? "")}/context`;
  useEffect(() => {
    if (!id) return;
    read(path).then(
      (found) => {
        setStored(found);
        // Text that the user has already typed is not overwritten.
        setText((written) => written || found);
      },
      () => undefined, // Shown as empty; saving reports the error.
    );
  }, [id]);
  if (!id) return null;
  const save = async () => {
    try {
      await (text.trim() ? call("POST", path, { context: text }) : call("DELETE", path));
      setStored(text);
      toast(text.trim() ? `Pinned for ${id}.` : `Nothing is pinned for ${id}.`);
    } catch (error) {
      toast(errorText(error), { kind: "error" });
    }
  };
  return (
    <section>
      <h3>
        <label for={fieldId}>Pinned for {id}</label>
      </h3>
      <textarea
        id={fieldId}
        rows={4}
        placeholder="What the agent should always know about you"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {text !== stored && (
        <div class="row-end">
          <button type="button" class="button" onClick={() => setText(stored)}>
            Cancel
          </button>
          <button type="button" class="button button-primary" onClick={() => void save()}>
            Pin
          </button>
        </div>
      )}
    </section>
  );
}

async function read(path: string): Promise<string> {
  try {
    return (await call<{ context: string }>("GET", path)).context;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return "";
    throw error;
  }
}
