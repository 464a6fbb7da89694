/** What the model saw in a turn: the texts that went first, the messages of its window, and what was left out. */
import { useEffect, useState } from "preact/hooks";
import { call, errorText, type Seen, threadPath } from "../api";
import { textOf } from "../chat/messages";
import { Dialog } from "../ui/Dialog";

interface Props {
  stateKey: string;
  turnId: string;
  onClose: () => void;
}

export function SeenDialog({ stateKey, turnId, onClose }: Props) {
  const [seen, setSeen] = useState<Seen | string | null>(null);
  useEffect(() => {
    call<Seen>("GET", `${threadPath(stateKey)}/seen?turnId=${encodeURIComponent(turnId)}`).then(
      setSeen,
      (error: unknown) => setSeen(errorText(error)),
    );
  }, [stateKey, turnId]);
  return (
    <Dialog title="What the model saw" onClose={onClose} wide>
      {seen === null ? (
        <p role="status">Loading…</p>
      ) : typeof seen === "string" ? (
        <p role="alert">{seen}</p>
      ) : (
        <Shown seen={seen} />
      )}
    </Dialog>
  );
}

function Shown({ seen }: { seen: Seen }) {
  return (
    <>
      <p class="counts">
        {seen.messages.length} {seen.messages.length === 1 ? "message" : "messages"}, about{" "}
        {seen.tokens.toLocaleString()} tokens
        {seen.messagesLeftOut > 0 && `; ${seen.messagesLeftOut} earlier ones left out`}
        {seen.agentId && ` · ${seen.agentId}`}
      </p>
      <ol class="seen">
        {seen.system.map((text, at) => (
          <li key={`system ${at}`} class="seen-system">
            <span>system</span>
            <pre tabIndex={0}>{text}</pre>
          </li>
        ))}
        {seen.messages.map((message) => (
          <li key={message.id}>
            <span>{message.role}</span>
            <pre tabIndex={0}>{textOf(message) || JSON.stringify(message.parts, null, 2)}</pre>
          </li>
        ))}
      </ol>
    </>
  );
}
