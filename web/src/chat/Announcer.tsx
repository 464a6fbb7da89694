/** Reads a streamed answer out in whole sentences: word by word would be noise, all at the end would be late. */
import type { UIMessage } from "ai";
import { useEffect, useRef, useState } from "preact/hooks";
import { textOf } from "./messages";

const SENTENCES = /[\s\S]*[.!?:…](?=\s|$)/;
const EVERY_MS = 1_200;

export function Announcer({ message, isBusy }: { message: UIMessage | undefined; isBusy: boolean }) {
  const [said, setSaid] = useState("");
  const held = useRef({ id: "", length: 0, wasBusy: false, text: "" });
  held.current.text = message?.role === "assistant" ? textOf(message) : "";
  useEffect(() => {
    const state = held.current;
    const id = message?.id ?? "";
    if (id !== state.id && isBusy) Object.assign(state, { id, length: 0 });
    if (isBusy) {
      state.wasBusy = true;
      const speak = () => {
        const ready = SENTENCES.exec(state.text.slice(state.length))?.[0] ?? "";
        if (ready.trim()) setSaid(ready);
        state.length += ready.length;
      };
      const timer = window.setInterval(speak, EVERY_MS);
      return () => window.clearInterval(timer);
    }
    if (state.wasBusy) {
      state.wasBusy = false;
      setSaid(state.text.slice(state.length) || "Done.");
      state.length = state.text.length;
    }
    return undefined;
  }, [message?.id, isBusy]);
  return (
    <div class="unseen" aria-live="polite" aria-atomic="true" data-announcer>
      {said}
    </div>
  );
}
