/** A conversation: header, messages, composer and details panel. */
import { useEffect } from "preact/hooks";
import { useAgents } from "../agents";
import type { History } from "../api";
import { useCell } from "../cell";
import { Panel } from "../panel/Panel";
import { isListOpen, isPanelOpen } from "../shell";
import { titleOf } from "../threads/ThreadRow";
import { IconButton } from "../ui/IconButton";
import { Announcer } from "./Announcer";
import { Composer } from "./Composer";
import { type Conversing, useConversation } from "./conversation";
import { Empty } from "./Empty";
import { isReachable } from "./following";
import { HomeButton } from "./HomeDialog";
import { MessageView } from "./MessageView";
import { textOf } from "./messages";
import { useScrolling } from "./scrolling";
import { Trouble } from "./Trouble";

export function Conversation({ initial, seq }: { initial: History; seq?: number | undefined }) {
  const talk = useConversation(initial);
  const isBeside = useCell(isPanelOpen);
  useTitle(talk);
  return (
    <>
      <section class="conversation" aria-label="Conversation">
        <Head talk={talk} />
        <Reachability />
        <Messages talk={talk} seq={seq} />
        <Composer talk={talk} />
      </section>
      {isBeside && <Panel talk={talk} />}
      <Announcer message={talk.messages.at(-1)} isBusy={talk.isBusy} />
    </>
  );
}

function Head({ talk }: { talk: Conversing }) {
  const { thread } = talk;
  const isBeside = useCell(isPanelOpen);
  return (
    <header class="head">
      <IconButton
        icon="menu"
        label="Threads"
        class="only-narrow"
        aria-expanded={isListOpen.get()}
        onClick={() => isListOpen.set(true)}
      />
      <h1 dir="auto">{shownTitle(talk) ?? "New thread"}</h1>
      {thread.messageCount !== undefined && (
        <span class="counts">
          {thread.messageCount} {thread.messageCount === 1 ? "message" : "messages"}
          {thread.tokenCount ? ` · ${thread.tokenCount.toLocaleString()} tokens` : ""}
        </span>
      )}
      {thread.id !== undefined && <HomeButton thread={thread} />}
      <IconButton
        icon="panel"
        label={isBeside ? "Hide details" : "Show details"}
        aria-expanded={isBeside}
        onClick={() => isPanelOpen.set(!isBeside)}
      />
    </header>
  );
}

function Reachability() {
  if (useCell(isReachable)) return null;
  return (
    <p class="offline" role="status">
      The service cannot be reached. The page reconnects automatically.
    </p>
  );
}

function Messages({ talk, seq }: { talk: Conversing; seq: number | undefined }) {
  const { messages, firstSeq, facts, isBusy } = talk;
  const agents = useAgents();
  const scrolling = useScrolling(talk, seq === undefined ? undefined : seq - firstSeq);
  if (!messages.length) return <Empty onPick={talk.setDraft} />;
  return (
    <div class="scroller" ref={scrolling.place} onScroll={scrolling.onScroll} tabIndex={-1}>
      {firstSeq > 0 && (
        <button type="button" class="link-button older" ref={scrolling.older} onClick={() => void talk.loadOlder()}>
          Load older messages
        </button>
      )}
      <ol class="messages" aria-label="Messages">
        {messages.map((message, at) => (
          <MessageView
            key={message.id}
            message={message}
            seq={firstSeq + at}
            talk={talk}
            facts={facts}
            isLast={at === messages.length - 1 && !talk.isPast}
            isBusy={isBusy}
            agents={agents}
          />
        ))}
        {isBusy && messages.at(-1)?.role === "user" && (
          <li class="message message-assistant">
            <p class="waiting" aria-hidden="true">
              <span />
              <span />
              <span />
            </p>
          </li>
        )}
      </ol>
      {talk.isPast ? (
        <button type="button" class="link-button older newer" onClick={() => void talk.loadLater()}>
          Load newer messages
        </button>
      ) : (
        <Trouble talk={talk} />
      )}
      {!scrolling.isAtEnd && (
        <IconButton icon="down" label="Jump to the newest message" class="to-end" onClick={scrolling.toEnd} />
      )}
    </div>
  );
}

/** Until a thread has a title, its first question. */
function shownTitle({ thread, messages, firstSeq }: Conversing): string | undefined {
  const [first] = messages;
  if (first && firstSeq === 0 && !thread.title) return titleOf({ title: textOf(first) });
  return thread.id ? titleOf(thread) : undefined;
}

function useTitle(talk: Conversing): void {
  const title = shownTitle(talk);
  useEffect(() => {
    document.title = title ? `${title} · Threadline` : "Threadline";
  }, [title]);
}
