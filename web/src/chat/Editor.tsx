/** Edits a user message in place. The old version is kept. */
import { useState } from "preact/hooks";

interface Props {
  initial: string;
  onDone: (text: string) => void;
  onCancel: () => void;
}

export function Editor({ initial, onDone, onCancel }: Props) {
  const [text, setText] = useState(initial);
  const done = () => text.trim() && onDone(text.trim());
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") onCancel();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      done();
    }
  };
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        done();
      }}
    >
      <textarea
        aria-label="Edit your message"
        dir="auto"
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        autoFocus
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <div class="row-end">
        <button type="button" class="button" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="button button-primary" disabled={!text.trim()}>
          Send edited message
        </button>
      </div>
    </form>
  );
}
