// Drives a real `ai` client through steps given as JSON: argv = [package, service address, chat id, steps].
// Prints, as one JSON array, what the client shows after each step.
const [, , packageName, url, id, given] = process.argv;
const { AbstractChat, DefaultChatTransport, validateUIMessages } = await import(packageName);
const api = `${url}/api/v1/ai/chat`;

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

function open(single) {
  const transport = new DefaultChatTransport({ api, ...(single ? { prepareSendMessagesRequest: alone } : {}) });
  return new Chat({ id, transport, state: new State() });
}

async function stored() {
  return (await (await fetch(`${url}/api/v1/ai/threads/${id}`)).json()).messages;
}

async function until(condition) {
  const patience = Date.now() + 10_000;
  while (!condition()) {
    if (Date.now() > patience) throw new Error("nothing came");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const words = () => (chat.messages.at(-1)?.parts ?? []).some((part) => part.type === "text" && part.text.length > 3);
const answering = () => chat.messages.at(-1)?.role === "assistant" && words();
let chat = open(false);

const steps = {
  send: (text) => chat.sendMessage({ text }),
  sendAlone: async (text) => { const { messages } = chat; chat = open(true); chat.messages = messages; await steps.send(text); },
  edit: (index, text) => chat.sendMessage({ text, messageId: chat.messages[index].id }),
  regenerate: (index) => chat.regenerate(index === undefined ? {} : { messageId: chat.messages[index].id }),
  leave: async (text) => {
    const sending = chat.sendMessage({ text });
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
  validate: async () => { await validateUIMessages({ messages: await stored() }); },
  forge: (messages) => { chat.messages = messages; },
};

const shown = [];
for (const [name, ...values] of JSON.parse(given)) {
  await steps[name](...values);
  shown.push({ status: chat.status, error: chat.error?.message ?? null, messages: chat.messages });
}
process.stdout.write(JSON.stringify(shown));
