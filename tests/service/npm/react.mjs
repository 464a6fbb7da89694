// Renders a chat of @ai-sdk/react or assistant-ui in jsdom, in StrictMode, and drives it through steps that it reads as
// JSON, one a line. Prints, as one line of JSON, what it shows after each step, or how it failed.
import { createInterface } from "node:readline";
import { JSDOM } from "jsdom";

const { window } = new JSDOM('<div id="root"></div>', { url: "http://page.example/", pretendToBeVisual: true });
const names = ["window", "document", "navigator", "HTMLElement", "Element", "Node", "Event", "CustomEvent", "MutationObserver"];
for (const name of names) {
  Object.defineProperty(globalThis, name, { value: name === "window" ? window : window[name], configurable: true });
}

// React looks for these when it is loaded.
const { createElement, StrictMode } = await import("react");
const { createRoot } = await import("react-dom/client");
const { useChat } = await import("@ai-sdk/react");
const { DefaultChatTransport } = await import("ai");
const { AssistantRuntimeProvider } = await import("@assistant-ui/react");
const { AssistantChatTransport, useChatRuntime } = await import("@assistant-ui/react-ai-sdk");
const { useDataStreamRuntime } = await import("@assistant-ui/react-data-stream");

let url, api, id, kind, root, page, errors;
// A message that is sent while the client still asks for a running stream is dropped by @ai-sdk/react.
let resuming = 0;
const { fetch } = globalThis;
globalThis.fetch = async (input, init) => {
  const isResume = String(input).endsWith("/stream");
  resuming += isResume;
  try {
    return await fetch(input, init);
  } finally {
    resuming -= isResume;
  }
};

const textOf = (parts) => parts.map((part) => (part.type === "text" ? part.text : "")).join("");
const asContent = (parts) => [{ type: "text", text: textOf(parts) }];

function UseChat({ history }) {
  const transport = new DefaultChatTransport({ api });
  const chat = useChat({ id, messages: history, transport, resume: true, onError: (error) => errors.push(error.message) });
  page = {
    status: chat.status,
    isBusy: chat.status === "submitted" || chat.status === "streaming",
    messages: chat.messages.map(({ id, role, parts }) => ({ id, role, text: textOf(parts) })),
    send: (text) => chat.sendMessage({ text }),
    stop: () => chat.stop(),
    regenerate: () => chat.regenerate(),
    edit: (index, text) => chat.sendMessage({ text, messageId: chat.messages[index].id }),
  };
  return null;
}

function assistantUi(runtime) {
  const { thread } = runtime;
  const { messages, isRunning } = thread.getState();
  const message = (text) => ({ role: "user", content: [{ type: "text", text }] });
  page = {
    status: isRunning ? "streaming" : "ready",
    isBusy: isRunning,
    messages: messages.map(({ id, role, content }) => ({ id, role, text: textOf(content) })),
    send: (text) => thread.append(message(text)),
    stop: () => thread.cancelRun(),
    regenerate: () => thread.startRun({ parentId: messages.at(-2).id }),
    edit: (index, text) => thread.append({ ...message(text), parentId: messages[index - 1]?.id ?? null, sourceId: messages[index].id }),
  };
}

function Following({ runtime }) {
  assistantUi(runtime);
  runtime.thread.subscribe(() => assistantUi(runtime));
  return null;
}

const within = (runtime) => createElement(AssistantRuntimeProvider, { runtime }, createElement(Following, { runtime }));

function AssistantUiOnAiSdk({ history }) {
  const transport = new AssistantChatTransport({ api, body: { stateKey: id, rewind: true } });
  return within(useChatRuntime({ transport, messages: history, onError: (error) => errors.push(error.message) }));
}

function AssistantUiOnDataStream({ history }) {
  const options = { api, sendExtraMessageFields: true, body: { stateKey: id, rewind: true, policy: "interrupt" } };
  const initialMessages = history.map(({ id, role, parts }) => ({ id, role, content: asContent(parts) }));
  return within(useDataStreamRuntime({ ...options, initialMessages, onError: (error) => errors.push(error.message) }));
}

const pages = { "use-chat": UseChat, "assistant-ui": AssistantUiOnAiSdk, "data-stream": AssistantUiOnDataStream };

async function until(condition) {
  const patience = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > patience) throw new Error(`nothing came: ${JSON.stringify(page)} ${errors}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function render() {
  root?.unmount();
  page = undefined;
  const history = (await (await fetch(`${url}/api/v1/ai/threads/${id}`)).json()).messages;
  root = createRoot(document.getElementById("root"));
  root.render(createElement(StrictMode, null, createElement(pages[kind], { history })));
  await until(() => page && page.messages.length >= history.length && !resuming);
  // React runs effects, and with them the resume, after the first render.
  await new Promise((resolve) => setTimeout(resolve, 20));
  await until(() => !resuming);
}

// An assistant message is created before its first word; the answer is complete once nothing runs.
const isAnswered = (count) => () => !page.isBusy && page.messages.length === count && page.messages.at(-1).text.length > 0;
const isAnswering = () => page.isBusy && page.messages.at(-1)?.role === "assistant" && page.messages.at(-1).text.length > 3;

const steps = {
  begin: (service, key, name) => { [url, api, id, kind, errors] = [service, `${service}/api/v1/ai/chat`, key, name, []]; return render(); },
  send: async (text) => { const count = page.messages.length; await page.send(text); await until(isAnswered(count + 2)); },
  leave: async (text) => { void page.send(text); await until(isAnswering); await page.stop(); await until(() => !page.isBusy); },
  leaveByReload: async (text) => { void page.send(text); await until(isAnswering); await render(); },
  regenerate: async () => {
    const [count, last] = [page.messages.length, page.messages.at(-1).id];
    await page.regenerate();
    await until(() => isAnswered(count)() && page.messages.at(-1).id !== last);
  },
  edit: async (index, text) => {
    await page.edit(index, text);
    await until(() => isAnswered(index + 2)() && page.messages[index].text === text);
  },
  finish: async () => { await until(() => !page.isBusy && page.messages.at(-1)?.role === "assistant"); },
  reload: render,
};

async function take(name, ...values) {
  try {
    await steps[name](...values);
    return { status: page.status, errors, messages: page.messages };
  } catch (error) {
    return { failed: String(error.stack ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await take(...JSON.parse(line)))}\n`);
}
process.exit(0);
