/** The message field: Enter sends, Shift+Enter starts a new line, and the button stops a running turn. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { agentIds, useAgents } from "../agents";
import { IconButton } from "../ui/IconButton";
import type { Conversing } from "./conversation";

const TALLEST_PX = 240;

export function Composer({ talk }: { talk: Conversing }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const { draft, setDraft, isBusy } = talk;
  const [agentId, setAgentId] = useState<string | undefined>(undefined);
  useLayoutEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, TALLEST_PX)}px`;
  }, [draft]);
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches) field.current?.focus();
  }, []);
  const send = () => {
    if (!draft.trim() || isBusy) return;
    talk.send(draft.trim(), agentId);
    setDraft("");
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-field">
        <textarea
          ref={field}
          id="composer"
          rows={1}
          placeholder="Write a message"
          aria-label="Message"
          value={draft}
          onInput={(event) => setDraft(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {isBusy ? (
          <IconButton icon="stop" label="Stop" class="composer-send composer-stop" onClick={talk.stop} />
        ) : (
          <IconButton icon="send" label="Send" class="composer-send" type="submit" disabled={!draft.trim()} />
        )}
      </div>
      {!talk.thread.id && !talk.messages.length && <AgentChoice chosen={agentId} onChoose={setAgentId} />}
    </form>
  );
}

/** The agent of a new thread, if there is more than one. */
function AgentChoice({ chosen, onChoose }: { chosen: string | undefined; onChoose: (id: string) => void }) {
  const agents = useAgents();
  const ids = agents ? agentIds(agents) : [];
  if (ids.length < 2) return null;
  return (
    <label class="agent-choice">
      Agent
      <select value={chosen ?? agents?.default} onChange={(event) => onChoose(event.currentTarget.value)}>
        {ids.map((id) => (
          <option key={id}>{id}</option>
        ))}
      </select>
    </label>
  );
}
