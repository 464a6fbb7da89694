/**
 * A chat page with assistant-ui, in both of its ways: on the AI SDK (default), and with its own data stream runtime
 * (`?runtime=data-stream`).
 */
import { useChat } from "@ai-sdk/react";
import {
  ActionBarPrimitive,
  AssistantRuntimeProvider,
  ComposerPrimitive,
  ErrorPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
  useAssistantTool,
} from "@assistant-ui/react";
import { useAISDKRuntime } from "@assistant-ui/react-ai-sdk";
import { useDataStreamRuntime } from "@assistant-ui/react-data-stream";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls, type UIMessage } from "ai";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { api, id, loadHistory, stopTurn } from "../chat-address";

const description = "Where the user is.";
const parameters = { type: "object" as const, properties: {} };

/** Where the browser is, as a tool that the page runs. */
async function locate() {
  const { coords } = await new Promise<GeolocationPosition>((resolve, reject) => {
    navigator.geolocation.getCurrentPosition(resolve, ({ message }) => reject(new Error(message)));
  });
  return { latitude: coords.latitude, longitude: coords.longitude };
}

// assistant-ui edits by removing messages and sending a new one, so the page tells the service to leave behind what it
// no longer shows. The removed messages stay reachable on the thread's earlier timeline.
const transport = new DefaultChatTransport({ api, body: { rewind: true, tools: { locate: { description, parameters } } } });

function OnAISDK({ history }: { history: UIMessage[] }) {
  const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithToolCalls;
  const chat = useChat({ id, messages: history, transport, resume: true, sendAutomaticallyWhen });
  // The Cancel button has to end the turn; the client's own stop only disconnects.
  const stop = async () => {
    await stopTurn();
    await chat.stop();
  };
  const runtime = useAISDKRuntime({ ...chat, stop });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <Thread />
    </AssistantRuntimeProvider>
  );
}

function OnDataStream({ history }: { history: UIMessage[] }) {
  const runtime = useDataStreamRuntime({
    api,
    // Then replies end with a reason, from which the runtime knows that they wait for a tool of the page.
    headers: { "X-AI-SDK": "7" },
    // The runtime counts the service's own steps too; with its default of 2 it would never send a tool's result.
    maxSteps: 50,
    // With message ids the service knows which question is asked again or edited.
    sendExtraMessageFields: true,
    body: { stateKey: id, rewind: true, policy: "interrupt" },
    onCancel: () => void stopTurn(),
    initialMessages: history.map(({ id, role, parts }) => ({
      id,
      role,
      content: parts.flatMap((part) => (part.type === "text" ? [{ type: "text" as const, text: part.text }] : [])),
    })),
  });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <Thread />
    </AssistantRuntimeProvider>
  );
}

function Thread() {
  useAssistantTool({ toolName: "locate", description, parameters, execute: locate });
  return (
    <ThreadPrimitive.Root>
      <ol aria-label="Messages">
        <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage, EditComposer }} />
      </ol>
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input aria-label="Message" />
        <ThreadPrimitive.If running={false}>
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ThreadPrimitive.If>
        <ThreadPrimitive.If running>
          <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
        </ThreadPrimitive.If>
      </ComposerPrimitive.Root>
    </ThreadPrimitive.Root>
  );
}

function UserMessage() {
  return (
    <MessagePrimitive.Root asChild>
      <li data-role="user">
        <MessagePrimitive.Parts />
        <ActionBarPrimitive.Edit>Edit</ActionBarPrimitive.Edit>
      </li>
    </MessagePrimitive.Root>
  );
}

function EditComposer() {
  return (
    <li>
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input aria-label="Edited message" />
        <ComposerPrimitive.Send>Save</ComposerPrimitive.Send>
      </ComposerPrimitive.Root>
    </li>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root asChild>
      <li data-role="assistant">
        <MessagePrimitive.Parts />
        <MessagePrimitive.Error>
          <ErrorPrimitive.Root role="alert">
            <ErrorPrimitive.Message />
          </ErrorPrimitive.Root>
        </MessagePrimitive.Error>
        <ActionBarPrimitive.Reload>Regenerate</ActionBarPrimitive.Reload>
      </li>
    </MessagePrimitive.Root>
  );
}

const history = await loadHistory();
const Page = new URLSearchParams(location.search).get("runtime") === "data-stream" ? OnDataStream : OnAISDK;
createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Page history={history} />
  </StrictMode>,
);
