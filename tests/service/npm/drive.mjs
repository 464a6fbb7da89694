// Drives a real `ai` client, the package named in argv, through steps that it reads as JSON, one a line.
// Prints, as one line of JSON, what the client shows after each step, or how it failed.
import { createInterface } from "node:readline";

const ai = await import(process.argv[2]);
const { AbstractChat, DefaultChatTransport, validateUIMessages } = ai;
let url, api, id, chat, headers, loses, offered;
// The data parts that came over the wire, transient ones included.
let data = [];

class State {
  messages = [];
  status = "ready";
  error = undefined;
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((each, at) => (at === index ? message : each));
  };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {}

const alone = ({ id, messages, trigger, messageId }) => ({ body: { id, message: messages.at(-1), trigger, messageId } });

// Loses the next request before it is sent, or its response after it was.
async function unreliable(input, init) {
  const lost = loses;
  loses = undefined;
  if (lost === "request") throw new TypeError("fetch failed");
  const response = await fetch(input, init);
  if (lost !== "response") return response;
  await response.body.cancel();
  throw new TypeError("fetch failed");
}

function open(single) {
  const more = single ? { prepareSendMessagesRequest: alone } : {};
  const transport = new DefaultChatTransport({ api, headers, fetch: unreliable, body: { tools: offered }, ...more });
  const whole = [ai.lastAssistantMessageIsCompleteWithApprovalResponses, ai.lastAssistantMessageIsCompleteWithToolCalls];
  const sendAutomaticallyWhen = (given) => whole.some((isWhole) => isWhole?.(given));
  return new Chat({ id, transport, state: new State(), sendAutomaticallyWhen, onData: (part) => void data.push(part) });
}

async function stored() {
  return (await (await fetch(`${url}/api/v1/ai/threads/${id}`)).json()).messages;
}

async function until(condition) {
  const patience = Date.now() + 30_000;
  while (!condition()) {
    if (Date.now() > patience) throw new Error("nothing came");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const words = () => (chat.messages.at(-1)?.parts ?? []).some((part) => part.type === "text" && part.text.length > 3);
const answering = () => chat.messages.at(-1)?.role === "assistant" && words();
const pending = () => chat.messages.at(-1).parts.filter((part) => part.state === "approval-requested");
const open_calls = () => chat.messages.at(-1).parts.filter((part) => part.state === "input-available");
const answered = () => chat.messages.at(-1).parts.some((part) => part.state === "output-available");
const settled = () => chat.status === "ready" || chat.status === "error";

async function answer(approved, reason) {
  for (const part of pending()) await chat.addToolApprovalResponse({ id: part.approval.id, approved, reason });
  await until(() => !settled());
}

const steps = {
  begin: (service, name, version) => {
    url = service;
    api = `${url}/api/v1/ai/chat`;
    id = name;
    headers = version ? { "x-ai-sdk": version } : {};
    loses = offered = undefined;
    data = [];
    chat = open(false);
  },
  offer: (tools) => { offered = tools; chat = open(false); },
  // Runs each tool that waits: an object with `errorText` is an error.
  output: async (outputs) => {
    for (const part of open_calls()) {
      const { errorText } = outputs[part.type] ?? {};
      const failed = errorText && chat.addToolOutput;
      const given = failed ? { state: "output-error", errorText } : { output: errorText ?? outputs[part.type] };
      const call = { tool: part.type.slice(5), toolCallId: part.toolCallId, ...given };
      await (chat.addToolOutput ?? chat.addToolResult)(call);
    }
    await until(() => !settled());
    await until(settled);
  },
  send: (text, body) => chat.sendMessage({ text }, body ? { body } : undefined),
  sendAlone: async (text) => { const { messages } = chat; chat = open(true); chat.messages = messages; await steps.send(text); },
  edit: (index, text) => chat.sendMessage({ text, messageId: chat.messages[index].id }),
  // As the chat templates edit.
  editAndRegenerate: async (index, text) => {
    const edited = { ...chat.messages[index], parts: [{ type: "text", text }] };
    chat.messages = [...chat.messages.slice(0, index), edited];
    await chat.regenerate();
  },
  regenerate: (index) => chat.regenerate(index === undefined ? {} : { messageId: chat.messages[index].id }),
  lose: (what, text) => { loses = what; return chat.sendMessage({ text }); },
  slice: (count) => { chat.messages = chat.messages.slice(0, count); },
  leave: async (text, body) => {
    const sending = chat.sendMessage({ text }, body ? { body } : undefined);
    await until(answering);
    await chat.stop();
    await sending;
  },
  stop: async (text) => {
    const sending = chat.sendMessage({ text });
    await until(answering);
    await fetch(`${api}/${id}/stop`, { method: "POST" });
    await sending;
  },
  reload: async () => { chat = open(false); chat.messages = await stored(); },
  resume: () => chat.resumeStream(),
  // The first release of version 5 does not validate.
  validate: async () => { await validateUIMessages?.({ messages: await stored() }); },
  answer: async (approved, reason) => { await answer(approved, reason); await until(settled); },
  answerAlone: async (approved) => { const { messages } = chat; chat = open(true); chat.messages = messages; await steps.answer(approved); },
  answerAndLeave: async (approved) => { await answer(approved); await until(answered); await chat.stop(); },
  forge: (messages) => { chat.messages = messages; },
};

async function take(name, ...values) {
  try {
    await steps[name](...values);
    return { status: chat.status, error: chat.error?.message ?? null, messages: chat.messages, data };
  } catch (error) {
    return { failed: String(error.stack ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await take(...JSON.parse(line)))}\n`);
}
