/** A chat page without a framework: fetch, a reader of server-sent events of twenty lines, and the DOM. */
import { api, id, loadHistory, problemText, stopTurn } from "../chat-address";

interface Chunk {
  type: string;
  messageId?: string;
  delta?: string;
  errorText?: string;
}

const element = (name: string) => document.getElementById(name)!;
const draft = element("draft") as HTMLInputElement;
/** A failed request is sent again with the same message id, so that it is stored once. */
let unsent: { id: string; text: string } | undefined;

/** The chunks of the AI SDK's UI message stream. An event ends with an empty line; lines that start with `:` are pings. */
async function* readChunks(response: Response): AsyncGenerator<Chunk> {
  // Not every browser can iterate over a stream with `for await`.
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const events = (rest + read.value).split("\n\n");
    rest = events.pop()!;
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function show(role: string, text: string): HTMLElement {
  const line = document.createElement("li");
  line.dataset.role = role;
  line.textContent = text;
  element("messages").append(line);
  return line;
}

/** Shows a reply while it arrives. */
async function follow(response: Response) {
  if (response.status === 204) return;
  if (!response.ok) throw new Error(await problemText(response));
  setBusy(true);
  const line = show("assistant", "");
  let beforeText = "";
  for await (const chunk of readChunks(response)) {
    if (chunk.type === "text-delta") line.textContent += chunk.delta!;
    // Another process started the answer again.
    if (chunk.type === "data-again") line.textContent = beforeText = "";
    // The agent's final text differs from what it streamed since its last tool call: it follows.
    if (chunk.type === "tool-input-available") beforeText = line.textContent!;
    if (chunk.type === "data-corrected") line.textContent = beforeText;
    if (chunk.type === "error") throw new Error(chunk.errorText);
  }
}

async function ask(question: { id: string; text: string }) {
  element("problem").textContent = "";
  unsent = question;
  try {
    const message = { id: question.id, role: "user", parts: [{ type: "text", text: question.text }] };
    const body = JSON.stringify({ id, message });
    const response = await fetch(api, { method: "POST", headers: { "content-type": "application/json" }, body });
    if (response.ok) unsent = undefined;
    await follow(response);
  } catch (error) {
    element("problem").textContent = (error as Error).message;
    element("problem").append(retryButton());
  } finally {
    setBusy(false);
  }
}

function retryButton() {
  const button = document.createElement("button");
  button.textContent = "Retry";
  button.onclick = () => (unsent ? ask(unsent) : location.reload());
  return button;
}

function setBusy(isBusy: boolean) {
  element("send").hidden = isBusy;
  element("stop").hidden = !isBusy;
}

element("stop").onclick = () => stopTurn();
element("composer").onsubmit = (event) => {
  event.preventDefault();
  const question = { id: crypto.randomUUID(), text: draft.value };
  draft.value = "";
  show("user", question.text);
  void ask(question);
};

for (const { role, parts } of await loadHistory()) {
  show(role, parts.map((part: { text?: string }) => part.text ?? "").join(""));
}
// A turn that was running when the page was closed or reloaded continues here. 204: there is none.
await follow(await fetch(`${api}/${id}/stream`)).finally(() => setBusy(false));
