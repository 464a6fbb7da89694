/** Where the service is and which chat is open, from the page's address: `?service=http://127.0.0.1:8300&chat=KEY`. */
const query = new URLSearchParams(location.search);

export const service = query.get("service") ?? "http://127.0.0.1:8300";
export const api = `${service}/api/v1/ai/chat`;
/** Any 1 to 128 letters, digits, `_` and `-`, chosen by the page: the service creates the thread with its first message. */
export const id = query.get("chat") ?? crypto.randomUUID();

query.set("chat", id);
history.replaceState(null, "", `?${query}`);

/** The stored messages; none for a new chat. Load them before the stream is resumed. */
export async function loadHistory() {
  const response = await fetch(`${service}/api/v1/ai/threads/${id}`);
  if (!response.ok) throw new Error(await problemText(response));
  return (await response.json()).messages;
}

/** `stop()` of the AI SDK only disconnects; this ends the turn. What was shown is stored. */
export async function stopTurn() {
  await fetch(`${api}/${id}/stop`, { method: "POST" });
}

/** Errors are `application/problem+json`: `detail` is a sentence for people. */
export async function problemText(response: Response) {
  return errorText(await response.text());
}

export function errorText(text: string) {
  try {
    return JSON.parse(text).detail ?? text;
  } catch {
    return text;
  }
}
