/** What can be done with one message: copy, edit or answer again, branch, save the point, see what the model saw. */
import type { UIMessage } from "ai";
import { useState } from "preact/hooks";
import { call, type Thread, threadPath } from "../api";
import { SeenDialog } from "../panel/SeenDialog";
import { open } from "../router";
import { AskName } from "../ui/AskName";
import { CopyButton } from "../ui/CopyButton";
import { IconButton } from "../ui/IconButton";
import { toast } from "../ui/toasts";
import type { Conversing } from "./conversation";
import { turnIdOf } from "./facts";
import { textOf } from "./messages";

interface Props {
  message: UIMessage;
  talk: Conversing;
  isBusy: boolean;
  onEdit: () => void;
}

export function MessageActions({ message, talk, isBusy, onEdit }: Props) {
  const [asking, setAsking] = useState<"save" | "seen" | null>(null);
  const { stateKey } = talk.thread;
  const turnId = turnIdOf(message.id);
  const branch = async () => {
    const made = await talk.act(() => call<Thread>("POST", `${threadPath(stateKey)}/branch`, { at: message.id }));
    if (!made) return;
    open(made.stateKey);
    toast("Branched into a new thread. The original is unchanged.", {
      action: { label: "Back", run: () => open(stateKey) },
    });
  };
  const save = async (name: string) => {
    const path = `ai/saves/${encodeURIComponent(name)}`;
    if (await talk.act(() => call("PUT", path, { stateKey, at: message.id }))) toast(`Saved as “${name}”.`);
  };
  return (
    <span class="actions">
      <CopyButton text={textOf(message)} label="Copy" />
      {message.role === "user" ? (
        <IconButton icon="edit" label="Edit" disabled={isBusy} onClick={onEdit} />
      ) : (
        <IconButton
          icon="again"
          label="Regenerate answer"
          disabled={isBusy}
          onClick={() => talk.regenerate(message.id)}
        />
      )}
      <IconButton icon="branch" label="Branch from here" onClick={() => void branch()} />
      <IconButton icon="flag" label="Save this point" onClick={() => setAsking("save")} />
      {turnId && <IconButton icon="eye" label="What the model saw" onClick={() => setAsking("seen")} />}
      {asking === "save" && (
        <AskName
          title="Save this point"
          label="Name"
          action="Save"
          onDone={(name) => void save(name)}
          onClose={() => setAsking(null)}
        />
      )}
      {asking === "seen" && turnId && (
        <SeenDialog stateKey={stateKey} turnId={turnId} onClose={() => setAsking(null)} />
      )}
    </span>
  );
}
