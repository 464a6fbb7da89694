/** A chat page with `useChat`: history, streaming, resume after a reload, stop, retry, edit, approvals and a browser tool. */
import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  type UIMessage,
} from "ai";
import { StrictMode, useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { api, errorText, id, loadHistory, stopTurn } from "../chat-address";
import { locate, tools } from "./browser-tools";

type Chat = ReturnType<typeof useChat>;
const transport = new DefaultChatTransport({ api, body: { tools } });

function ChatPage({ history }: { history: UIMessage[] }) {
  const isCorrected = useRef(false);
  const chat = useChat({
    id,
    messages: history,
    transport,
    resume: true,
    sendAutomaticallyWhen: (given) =>
      lastAssistantMessageIsCompleteWithToolCalls(given) || lastAssistantMessageIsCompleteWithApprovalResponses(given),
    onToolCall({ toolCall }) {
      // The service runs the others.
      if (toolCall.toolName === "locate") locate(toolCall.toolCallId, chat.addToolOutput);
    },
    // The agent's final text differs from what it streamed; the stored reply has only that.
    onData: (part) => void (part.type === "data-corrected" && (isCorrected.current = true)),
    async onFinish() {
      if (isCorrected.current) chat.setMessages(await loadHistory());
      isCorrected.current = false;
    },
  });
  // Calls that were open when the page was closed or reloaded.
  useEffect(() => {
    for (const part of history.at(-1)?.parts ?? []) {
      if (part.type === "tool-locate" && "toolCallId" in part && part.state === "input-available") {
        locate(part.toolCallId, chat.addToolOutput);
      }
    }
  }, []);
  const [draft, setDraft] = useState("");
  const isBusy = chat.status === "submitted" || chat.status === "streaming";
  const send = () => {
    void chat.sendMessage({ text: draft });
    setDraft("");
  };
  return (
    <main>
      <ol aria-label="Messages">
        {chat.messages.map((message) => (
          <li key={message.id} data-role={message.role}>
            <Message message={message} chat={chat} />
          </li>
        ))}
      </ol>
      {chat.error && (
        <p role="alert">
          {errorText(chat.error.message)}{" "}
          {/* Also right if the message never arrived: the service answers the question that is shown last. */}
          <button type="button" onClick={() => void chat.regenerate()}>
            Retry
          </button>
        </p>
      )}
      <form onSubmit={(event) => (event.preventDefault(), send())}>
        <input aria-label="Message" value={draft} onChange={(event) => setDraft(event.target.value)} />
        {isBusy ? (
          <button type="button" onClick={() => void stopTurn()}>
            Stop
          </button>
        ) : (
          <button type="submit">Send</button>
        )}
      </form>
    </main>
  );
}

function Message({ message, chat }: { message: UIMessage; chat: Chat }) {
  const text = message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  const edit = () => {
    const changed = prompt("Edit the message", text);
    if (changed) void chat.sendMessage({ text: changed, messageId: message.id });
  };
  return (
    <>
      <p>{text}</p>
      {message.parts.filter(isToolUIPart).map((part) => (
        <p key={part.toolCallId}>
          {part.type.replace("tool-", "")}: {part.state}
          {part.state === "approval-requested" && (
            <>
              {[true, false].map((approved) => (
                <button
                  key={String(approved)}
                  type="button"
                  onClick={() => void chat.addToolApprovalResponse({ id: part.approval.id, approved })}
                >
                  {approved ? "Allow" : "Deny"}
                </button>
              ))}
            </>
          )}
        </p>
      ))}
      {message.role === "user" ? (
        <button type="button" onClick={edit}>
          Edit
        </button>
      ) : (
        <button type="button" onClick={() => void chat.regenerate({ messageId: message.id })}>
          Regenerate
        </button>
      )}
    </>
  );
}

const history = await loadHistory();
createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <ChatPage history={history} />
  </StrictMode>,
);
