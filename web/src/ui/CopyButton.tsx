/** Copies a text, and says so. */
import { useState } from "preact/hooks";
import { IconButton } from "./IconButton";
import { toast } from "./toasts";

const SHOWN_MS = 1_500;

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      toast("Copying is blocked by the browser.", { kind: "error" });
      return;
    }
    setDone(true);
    window.setTimeout(() => setDone(false), SHOWN_MS);
  };
  return <IconButton icon={isDone ? "check" : "copy"} label={isDone ? "Copied" : label} onClick={() => void copy()} />;
}
