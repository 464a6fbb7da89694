/** The user's saved points of all threads, to load or to delete. */
import { useEffect, useState } from "preact/hooks";
import { call, type SavedPoint, threadPath } from "../api";
import type { Conversing } from "../chat/conversation";
import { IconButton } from "../ui/IconButton";

export function Saves({ talk }: { talk: Conversing }) {
  const [saves, setSaves] = useState<SavedPoint[]>([]);
  useEffect(() => {
    call<{ saves: SavedPoint[] }>("GET", "ai/saves").then(
      (answer) => setSaves(answer.saves),
      () => undefined, // The list stays as it was; the next change reads it again.
    );
  }, [talk.facts]);
  const path = threadPath(talk.thread.stateKey);
  const load = (name: string) => void talk.act(() => call("POST", `${path}/load`, { name }));
  const forget = (name: string) => void talk.act(() => call("DELETE", `ai/saves/${encodeURIComponent(name)}`));
  return (
    <section>
      <h3>Saved points</h3>
      {saves.length === 0 ? (
        <p>Save a point with the flag below a message.</p>
      ) : (
        <ul class="saves" aria-label="Saved points">
          {saves.map((save) => (
            <li key={save.name}>
              <span class="saves-name">{save.name}</span>
              <IconButton
                icon="undo"
                label={`Load ${save.name}`}
                disabled={talk.isBusy || !talk.thread.id}
                onClick={() => load(save.name)}
              />
              <IconButton icon="trash" label={`Delete ${save.name}`} onClick={() => forget(save.name)} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
