/**
 * What the page reads of messages: their text, and what of them is a question, waits, or was not stored.
 */
import { isToolUIPart, type UIMessage } from "ai";

/** The last messages that are not stored; they return to the composer. */
export function unsentOf(shown: UIMessage[], stored: UIMessage[]): string[] {
  const asked = shown.slice(shown.findLastIndex((message) => message.role === "assistant") + 1);
  return asked.filter(({ id }) => !stored.some((message) => message.id === id)).map(textOf);
}

export const isQuestion = (message: UIMessage) => message.role === "user";

/** Of the texts since the last tool call, the last one replaces the others. Other replies are not changed. */
export function withFinalText(message: UIMessage, at: number, { length }: UIMessage[]): UIMessage {
  if (message.role !== "assistant" || at < length - 1) return message;
  const from = message.parts.findLastIndex(isToolUIPart);
  const final = message.parts.findLastIndex((part) => part.type === "text");
  return { ...message, parts: message.parts.filter(({ type }, at) => type !== "text" || at < from || at === final) };
}

export function isWaiting(last: UIMessage | undefined): boolean {
  return last?.parts.some((part) => isToolUIPart(part) && part.state === "approval-requested") ?? false;
}

export function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}
