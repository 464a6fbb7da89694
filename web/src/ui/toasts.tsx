/** Short messages with at most one action. Screen readers announce them, and they disappear. */
import { Cell, useCell } from "../cell";
import { IconButton } from "./IconButton";

interface Toast {
  id: number;
  text: string;
  kind: "note" | "error";
  action?: { label: string; run: () => void };
}

const shown = new Cell<Toast[]>([]);
const NOTE_MS = 6_000;
const UNDO_MS = 10_000;
let count = 0;

export function toast(text: string, more: Partial<Pick<Toast, "kind" | "action">> = {}): void {
  const id = ++count;
  shown.change((toasts) => [...toasts.slice(-2), { id, text, kind: "note", ...more }]);
  window.setTimeout(() => dismiss(id), more.action ? UNDO_MS : NOTE_MS);
}

function dismiss(id: number): void {
  shown.change((toasts) => toasts.filter((toast) => toast.id !== id));
}

export function Toasts() {
  const toasts = useCell(shown);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map((each) => (
        <div key={each.id} class={`toast toast-${each.kind}`}>
          <span>{each.text}</span>
          {each.action && (
            <button
              type="button"
              class="link-button"
              onClick={() => {
                dismiss(each.id);
                each.action?.run();
              }}
            >
              {each.action.label}
            </button>
          )}
          <IconButton icon="close" label="Dismiss" onClick={() => dismiss(each.id)} />
        </div>
      ))}
    </div>
  );
}
