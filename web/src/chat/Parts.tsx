/** What an answer is made of, in its order: words, thoughts, tool calls, sources. */
import { getToolName, isToolUIPart, type SourceUrlUIPart, type UIMessage } from "ai";
import { followable } from "../markdown/links";
import { Markdown } from "../markdown/Markdown";
import { Icon } from "../ui/icons";
import { ToolCard } from "./ToolCard";

interface Props {
  message: UIMessage;
  isStreaming: boolean;
  onApproval: (id: string, approved: boolean) => void;
}

export function Parts({ message, isStreaming, onApproval }: Props) {
  const sources = message.parts.filter((part) => part.type === "source-url");
  const lastAt = message.parts.length - 1;
  return (
    <div class="parts">
      {message.parts.map((part, at) => {
        if (part.type === "text")
          return <Markdown key={at} text={part.text} isStreaming={isStreaming && at === lastAt} />;
        if (part.type === "reasoning")
          return <Thought key={at} text={part.text} isOngoing={isStreaming && at === lastAt} />;
        if (isToolUIPart(part))
          return <ToolCard key={part.toolCallId} name={getToolName(part)} part={part} onApproval={onApproval} />;
        if (part.type === "data-steered-message")
          return (
            <p key={at} class="steered-here">
              Your message was taken in here
            </p>
          );
        return null;
      })}
      {sources.length > 0 && <Sources sources={sources} />}
    </div>
  );
}

function Thought({ text, isOngoing }: { text: string; isOngoing: boolean }) {
  return (
    <details class="card thought">
      <summary>
        <Icon name="thought" />
        <span>{isOngoing ? "Thinking…" : "Reasoning"}</span>
      </summary>
      <div class="card-body">
        <Markdown text={text} />
      </div>
    </details>
  );
}

function Sources({ sources }: { sources: SourceUrlUIPart[] }) {
  return (
    <div class="sources">
      <span>Sources</span>
      <ul>
        {sources.map((source) => {
          const url = followable(source.url);
          return (
            <li key={source.sourceId}>
              {url ? (
                <a href={url.href} target="_blank" rel="noopener noreferrer" title={url.href}>
                  {source.title ?? url.host} <span class="place">({url.host})</span>
                </a>
              ) : (
                source.url
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
}
