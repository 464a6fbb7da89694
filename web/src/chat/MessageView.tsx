/** One message with its byline and actions. */
import type { UIMessage } from "ai";
import { memo } from "preact/compat";
import { useRef, useState } from "preact/hooks";
import { agentName } from "../agents";
import type { Agents } from "../api";
import { Markdown } from "../markdown/Markdown";
import { briefly, exactly } from "../times";
import type { Conversing } from "./conversation";
import { Editor } from "./Editor";
import { type Facts, turnIdOf } from "./facts";
import { MessageActions } from "./MessageActions";
import { textOf } from "./messages";
import { Parts } from "./Parts";
import { VersionSwitch } from "./VersionSwitch";

interface Props {
  message: UIMessage;
  seq: number;
  talk: Conversing;
  facts: Facts;
  isLast: boolean;
  isBusy: boolean;
  agents: Agents | null;
}

export const MessageView = memo(
  function MessageView({ message, seq, talk, facts, isLast, isBusy, agents }: Props) {
    const [isEditing, setEditing] = useState(false);
    const isUser = message.role === "user";
    const isStreaming = isLast && isBusy && !isUser;
    // While the reply streams, its turn is not known yet: the thread's agent answers.
    const answerer = useRef<string | undefined>(undefined);
    const turn = facts.turns.get(turnIdOf(message.id) ?? "");
    // A turn without an agent was the default agent's.
    if (turn) answerer.current = turn.agentId ?? agents?.default;
    else if (isStreaming) answerer.current = talk.thread.agentId ?? agents?.default;
    return (
      <li class={`message message-${message.role}`}>
        <p class="byline">
          <span class="who">
            {isUser
              ? "You"
              : (agentName(agents, answerer.current) ?? (message.role === "assistant" ? "Assistant" : message.role))}
          </span>
          <Provenance message={message} seq={seq} facts={facts} />
        </p>
        {isEditing ? (
          <Editor
            initial={textOf(message)}
            onCancel={() => setEditing(false)}
            onDone={(text) => {
              setEditing(false);
              talk.edit(message.id, text);
            }}
          />
        ) : isUser ? (
          <UserParts message={message} />
        ) : (
          <Parts message={message} isStreaming={isStreaming} onApproval={talk.answerApproval} />
        )}
        {!isEditing && !isStreaming && (
          <footer class="message-foot">
            <VersionSwitch
              versions={versionsAt(facts, seq, isUser)}
              talk={talk}
              what={isUser ? "question" : "answer"}
            />
            <MessageActions message={message} talk={talk} isBusy={isBusy} onEdit={() => setEditing(true)} />
          </footer>
        )}
      </li>
    );
  },
  (before, after) =>
    before.message === after.message &&
    before.seq === after.seq &&
    before.facts === after.facts &&
    before.isLast === after.isLast &&
    before.isBusy === after.isBusy &&
    before.agents === after.agents,
);

/** Versions of answers are switched at the answer, versions of questions at the question. */
function versionsAt(facts: Facts, seq: number, isUser: boolean) {
  const found = facts.versions.get(isUser ? seq : seq - 1);
  return found && found.isAnswers === !isUser ? found : undefined;
}

function UserParts({ message }: { message: UIMessage }) {
  return (
    <div class="said">
      {message.parts.map((part, at) => {
        if (part.type === "text") return <Markdown key={at} text={part.text} />;
        if (part.type === "file")
          return <FileNote key={at} name={part.filename} type={part.mediaType} url={part.url} />;
        return null;
      })}
    </div>
  );
}

function FileNote({ name, type, url }: { name: string | undefined; type: string; url: string }) {
  if (/^data:image\/(png|jpeg|gif|webp);base64,/i.test(url))
    return <img class="picture" src={url} alt={name ?? "Image"} />;
  return (
    <p class="file-note">
      {name ?? "File"} <span>{type}</span>
    </p>
  );
}

const ENDED: Record<string, string> = { stopped: "stopped", interrupted: "interrupted", dispatch_failed: "failed" };

/** Model, time, surface (if not web), tokens and, for a reply that is not complete, why. */
function Provenance({ message, seq, facts }: { message: UIMessage; seq: number; facts: Facts }) {
  const turnId = turnIdOf(message.id);
  const turn = turnId ? facts.turns.get(turnId) : [...facts.turns.values()].find((each) => each.requestSeq === seq);
  // A branch or an import has messages of turns that it does not have: their end is in the message's metadata.
  const status = turn ? turn.status : (message.metadata as { status?: string } | undefined)?.status;
  const mark = message.role === "assistant" && status && ENDED[status];
  if (!turn) return mark ? <span class="ended">{mark}</span> : null;
  const at = turnId ? (turn.finishedAt ?? turn.createdAt) : turn.createdAt;
  const tokens = turnId && turn.usage ? tokensOf(turn.usage) : 0;
  return (
    <>
      {turnId && turn.model && <span>{turn.model}</span>}
      {at && (
        <time dateTime={at} title={exactly(at)}>
          {briefly(at)}
        </time>
      )}
      {turn.surface !== "web" && <span class="surface">{turn.surface}</span>}
      {tokens > 0 && <span>{tokens.toLocaleString()} tokens</span>}
      {mark && <span class="ended">{mark}</span>}
    </>
  );
}

function tokensOf(usage: Record<string, number>): number {
  return (usage.inputTokens ?? 0) + (usage.outputTokens ?? 0);
}
