/** Where nothing was said yet: what this is, and, where the rehearsal agent answers, a few things to try. */
import { useAgents } from "../agents";
import { Mark } from "../ui/icons";

const TRIES = ["help", "calculate 6*7", "think about rain", "what do you know about me?"];

export function Empty({ onPick }: { onPick: (text: string) => void }) {
  const isRehearsal = useAgents()?.default === "rehearsal";
  return (
    <div class="scroller">
      <div class="middle">
        <Mark />
        <h2>What is on your mind?</h2>
        <p>
          What you say is kept on the server, once. You can edit it, branch it, come back to it another day, or go on
          from another place.
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
