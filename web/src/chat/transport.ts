/** The transport of useChat: sends the token and only the last message. The server has the history. */
import { DefaultChatTransport, type UIMessage } from "ai";
import { address, signedFetch } from "../api";

export function chatTransport(): DefaultChatTransport<UIMessage> {
  return new DefaultChatTransport({
    api: address("ai/chat"),
    fetch: signedFetch,
    prepareSendMessagesRequest: ({ id, messages, trigger, messageId, body }) => ({
      body: { ...body, id, messages: messages.slice(-1), trigger, messageId },
    }),
  });
}
