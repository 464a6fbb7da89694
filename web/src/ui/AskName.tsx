/** Asks for one line of text: a title, a saved point's name. */
import { useId, useState } from "preact/hooks";
import { Dialog } from "./Dialog";

interface Props {
  title: string;
  label: string;
  action: string;
  initial?: string;
  onDone: (text: string) => void;
  onClose: () => void;
}

export function AskName({ title, label, action, initial = "", onDone, onClose }: Props) {
  const [text, setText] = useState(initial);
  const fieldId = useId();
  const submit = (event: Event) => {
    event.preventDefault();
    if (!text.trim()) return;
    onDone(text.trim());
    onClose();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <label for={fieldId}>{label}</label>
        <input id={fieldId} value={text} maxLength={200} autoFocus onInput={(e) => setText(e.currentTarget.value)} />
        <div class="row-end">
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button button-primary" disabled={!text.trim()}>
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
