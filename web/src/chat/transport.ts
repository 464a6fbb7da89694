/** The transport of useChat: sends the token and only the last message. The server has the history. */
import { DefaultChatTransport, type UIMessage } from "ai";
import { address, signedFetch } from "../api";

export function chatTransport(): DefaultChatTransport<UIMessage> {
  return new DefaultChatTransport({
    api: address("ai/chat"),
    fetch: signedFetch,
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId, headers, body }) => {
      const last = messages.slice(-1);
      const isNewMessage = trigger === "submit-message" && messageId === undefined && last[0]?.role === "user";
      const sent = new Headers(headers);
      // The same message sent twice, because an answer was lost on the way, is one message.
      if (isNewMessage && last[0]) sent.set("idempotency-key", last[0].id);
      return { headers: sent, body: { ...body, id, messages: last, trigger, messageId } };
    },
  });
}
