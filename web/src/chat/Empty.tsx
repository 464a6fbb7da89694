/** An empty thread. If the rehearsal agent is the default, it shows a few messages to try. */
import { useAgents } from "../agents";
import { Mark } from "../ui/icons";

const TRIES = ["help", "calculate 6*7", "think about rain", "what do you know about me?"];

export function Empty({ onPick }: { onPick: (text: string) => void }) {
  const isRehearsal = useAgents()?.default === "rehearsal";
  return (
    <div class="scroller">
      <div class="middle">
        <Mark />
        <h2>Start a conversation</h2>
        <p>
          Threads are stored on the server. You can edit messages, branch a thread, and continue it later or on another
          platform.
        </p>
        <ul class="tries" aria-label="Things to try" hidden={!isRehearsal}>
          {TRIES.map((text) => (
            <li key={text}>
              <button
                type="button"
                class="button"
                onClick={() => {
                  onPick(text);
                  document.getElementById("composer")?.focus();
                }}
              >
                {text}
              </button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
