/** The details panel: versions, saved points, summary, pinned context, channels and counts. */
import { call, threadPath } from "../api";
import type { Conversing } from "../chat/conversation";
import { Lineage } from "../lineage/Lineage";
import { versionsAmong } from "../lineage/versions";
import { isPanelOpen } from "../shell";
import { exactly } from "../times";
import { IconButton } from "../ui/IconButton";
import { Icon } from "../ui/icons";
import { Channels } from "./Channels";
import { Pinned } from "./Pinned";
import { Saves } from "./Saves";
import { Summary } from "./Summary";

export function Panel({ talk }: { talk: Conversing }) {
  const isThere = talk.thread.id !== undefined;
  return (
    <aside class="panel" aria-label="Details">
      <header class="panel-head">
        <h2>Details</h2>
        <IconButton icon="close" label="Hide details" class="only-narrow" onClick={() => isPanelOpen.set(false)} />
      </header>
      <section>
        <h3>Versions</h3>
        <Lineage talk={talk} />
        {isThere && <UndoButton talk={talk} />}
      </section>
      <Saves talk={talk} />
      {isThere && <Summary talk={talk} />}
      <Pinned agentId={talk.thread.agentId} />
      <Channels talk={talk} />
      {isThere && <Counts talk={talk} />}
    </aside>
  );
}

function UndoButton({ talk }: { talk: Conversing }) {
  const undo = () => void talk.act(() => call("POST", `${threadPath(talk.thread.stateKey)}/undo`));
  return (
    <div>
      <button type="button" class="button" disabled={talk.isBusy || !talk.messages.length} onClick={undo}>
        <Icon name="undo" />
        Undo the last message
      </button>
    </div>
  );
}

function Counts({ talk }: { talk: Conversing }) {
  const { thread, facts } = talk;
  return (
    <section>
      <h3>This thread</h3>
      <dl class="facts">
        <dt>Messages</dt>
        <dd>{(thread.messageCount ?? 0).toLocaleString()}</dd>
        <dt>Tokens</dt>
        <dd>{(thread.tokenCount ?? 0).toLocaleString()}</dd>
        <dt>Versions</dt>
        <dd>{versionsAmong(facts.timelines).length.toLocaleString()}</dd>
        {thread.agentId && (
          <>
            <dt>Agent</dt>
            <dd>{thread.agentId}</dd>
          </>
        )}
        {thread.createdAt && (
          <>
            <dt>Created</dt>
            <dd>{exactly(thread.createdAt)}</dd>
          </>
        )}
      </dl>
    </section>
  );
}
