/**
 * A conversation as it stands: useChat for what is being said, the store for what was said. Whenever nothing is being
 * said, what is shown is what is stored.
 */
import { useChat } from "@ai-sdk/react";
import { lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from "ai";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, type Head, type History, type Thread, threadPath, told } from "../api";
import { settle } from "../router";
import { refresh as refreshThreads } from "../threads/store";
import { toast } from "../ui/toasts";
import { type Facts, useFacts } from "./facts";
import { useFollowing } from "./following";
import { PAGE } from "./ThreadView";
import { chatTransport } from "./transport";

const DRAWN_EVERY_MS = 50;

export interface Conversing {
  thread: Thread;
  messages: UIMessage[];
  firstSeq: number;
  facts: Facts;
  isBusy: boolean;
  isStreaming: boolean;
  error: string | undefined;
  draft: string;
  setDraft: (text: string) => void;
  send: (text: string, agentId?: string) => void;
  edit: (messageId: string, text: string) => void;
  regenerate: (messageId?: string) => void;
  answerApproval: (id: string, approved: boolean) => void;
  stop: () => void;
  loadOlder: () => Promise<void>;
  /** Does something to the thread on the server, then shows what came of it. Null if it failed. */
  act: <T>(work: () => Promise<T>) => Promise<T | null>;
}

export function useConversation(initial: History): Conversing {
  const { stateKey } = initial;
  const [thread, setThread] = useState<Thread>(initial);
  const [firstSeq, setFirstSeq] = useState(initial.firstSeq ?? 0);
  const [draft, setDraft] = useState("");
  const isThere = thread.id !== undefined;
  const [facts, refreshFacts] = useFacts(stateKey, isThere);
  const transport = useMemo(chatTransport, []);
  const chat = useChat({
    id: stateKey,
    messages: initial.messages,
    transport,
    // Only for what was there when the page opened: what is begun here is read by whoever began it.
    resume: initial.id !== undefined,
    throttle: DRAWN_EVERY_MS,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const { messages, setMessages, status, error } = chat;
  const isBusy = status === "submitted" || status === "streaming";
  const now = useRef({ isBusy, length: messages.length, version: "" });
  now.current.isBusy = isBusy;
  now.current.length = messages.length;

  const refresh = useCallback(async (): Promise<History | null> => {
    const wanted = Math.max(PAGE, now.current.length);
    const fresh = await call<History>("GET", `${threadPath(stateKey)}?tail=${wanted}`);
    if (now.current.isBusy) return null;
    setThread(fresh);
    setFirstSeq(fresh.firstSeq ?? 0);
    setMessages(fresh.messages);
    refreshFacts();
    void refreshThreads();
    return fresh;
  }, [stateKey, setMessages, refreshFacts]);

  useSettling({ status, error, messages, refresh, stateKey, setDraft });

  useFollowing(stateKey, (head: Head) => {
    const isShown = head.version === "none" || head.version === now.current.version;
    const isFirst = now.current.version === "";
    now.current.version = head.version;
    if (isShown || isBusy) return;
    if (isFirst && head.messageCount === firstSeq + messages.length && !head.turnId) return;
    refresh().then(
      (fresh) => {
        if (!fresh) return;
        // What a lost connection left is settled now: how the turn ended is known from the service.
        chat.clearError();
        if (fresh.active) void chat.resumeStream();
      },
      () => undefined, // The service cannot be reached: the next head comes when it can.
    );
  });

  const act = useCallback(
    async <T>(work: () => Promise<T>): Promise<T | null> => {
      try {
        const done = await work();
        await refresh();
        return done;
      } catch (failure) {
        toast(told(failure), { kind: "error" });
        return null;
      }
    },
    [refresh],
  );

  const loadOlder = useCallback(async () => {
    if (firstSeq === 0) return;
    const from = Math.max(0, firstSeq - PAGE);
    const older = await call<History>("GET", `${threadPath(stateKey)}?first=${from}&last=${firstSeq - 1}`);
    if (now.current.isBusy) return;
    setFirstSeq(from);
    setMessages((shown) => [...older.messages, ...shown]);
  }, [stateKey, firstSeq, setMessages]);

  return {
    thread,
    messages,
    firstSeq,
    facts,
    isBusy,
    isStreaming: status === "streaming",
    error: error && told(error),
    draft,
    setDraft,
    loadOlder,
    act,
    send: (text, agentId) => void chat.sendMessage({ text }, agentId ? { body: { agentId } } : undefined),
    edit: (messageId, text) => void chat.sendMessage({ text, messageId }),
    regenerate: (messageId) => void chat.regenerate(messageId ? { messageId } : {}),
    answerApproval: (id, approved) => void chat.addToolApprovalResponse({ id, approved }),
    // The client's own stop only hangs up; the service has to be told.
    stop: () =>
      void call("POST", `ai/chat/${encodeURIComponent(stateKey)}/stop`).then(
        () => undefined,
        () => chat.stop(),
      ),
  };
}

interface Settling {
  status: string;
  error: Error | undefined;
  messages: UIMessage[];
  refresh: () => Promise<History | null>;
  stateKey: string;
  setDraft: (text: string) => void;
}

/** After each answer, or failure, shows what is stored. A message that was not accepted goes back to its writer. */
function useSettling({ status, error, messages, refresh, stateKey, setDraft }: Settling): void {
  const before = useRef(status);
  const last = useRef(messages);
  last.current = messages;
  useEffect(() => {
    const was = before.current;
    before.current = status;
    if (status === "submitted" || status === "streaming") {
      if (last.current.length) settle(stateKey);
      return;
    }
    if (was === status || (was !== "submitted" && was !== "streaming" && status !== "error")) return;
    const asked = last.current.findLast((message) => message.role === "user");
    void refresh().then(
      (stored) => {
        if (status !== "error" || !stored || !asked) return;
        if (stored.messages.some((message) => message.id === asked.id)) return;
        setDraft(textOf(asked));
        toast(`Not sent: ${told(error)}`, { kind: "error" });
      },
      () => undefined, // What was said stays on the page; following brings the rest once the service is back.
    );
  }, [status]);
}

export function textOf(message: UIMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}
