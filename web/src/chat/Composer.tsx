/**
 * The message field: Enter sends, or queues while a reply is running; Shift+Enter starts a new line. What is queued can be
 * sent at once, into the running reply. The button stops a running turn.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { IconButton } from "../ui/IconButton";
import { AgentChoice, type Choice } from "./AgentChoice";
import type { Conversing } from "./conversation";

const TALLEST_PX = 240;

export function Composer({ talk }: { talk: Conversing }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const { draft, setDraft, isBusy } = talk;
  const [choice, setChoice] = useState<Choice>({});
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
    if (draft.trim() || (talk.queued && !isBusy)) talk.send(draft.trim(), choice);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Steered talk={talk} />
      <Queued talk={talk} />
      <div class="composer-field">
        <textarea
          ref={field}
          id="composer"
          dir="auto"
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
          <>
            {draft.trim() && <IconButton icon="send" label="Queue message" type="submit" />}
            <IconButton icon="stop" label="Stop" class="composer-send composer-stop" onClick={talk.stop} />
          </>
        ) : (
          <IconButton
            icon="send"
            label="Send"
            class="composer-send"
            type="submit"
            disabled={!draft.trim() && !talk.queued}
          />
        )}
      </div>
      <AgentChoice talk={talk} chosen={choice} onChoose={setChoice} />
    </form>
  );
}

/** A message that waits for the end of the running reply. */
function Queued({ talk }: { talk: Conversing }) {
  return (
    <div role="status">
      {talk.queued && (
        <div class="queued">
          <p dir="auto">{talk.queued}</p>
          <span>Will be sent when the reply is finished</span>
          {talk.isBusy && (
            <button
              type="button"
              class="link-button"
              title="The running reply takes it in at its next step"
              onClick={talk.steer}
            >
              Send now
            </button>
          )}
          <button type="button" class="link-button" onClick={talk.unqueue}>
            Cancel
          </button>
        </div>
      )}
    </div>
  );
}

/** Messages that were sent into the running reply. */
function Steered({ talk }: { talk: Conversing }) {
  return (
    <div role="status">
      {talk.steered.map((text, at) => (
        <div class="queued steered" key={at}>
          <p dir="auto">{text}</p>
          <span>Sent. The reply takes it in at its next step, or it is answered next</span>
        </div>
      ))}
    </div>
  );
}
