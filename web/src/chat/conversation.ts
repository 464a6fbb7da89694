/**
 * The state of a conversation: useChat for the running turn, the service for stored messages. While no turn is running,
 * the page shows what is stored.
 */
import { useChat } from "@ai-sdk/react";
import { lastAssistantMessageIsCompleteWithApprovalResponses, type UIMessage } from "ai";
import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { call, errorText, type Head, type History, type Thread, threadPath } from "../api";
import { addStarted, refresh as refreshThreads, removeStarted } from "../threads/store";
import { toast } from "../ui/toasts";
import type { Choice } from "./AgentChoice";
import { useBeginning } from "./beginning";
import { paragraphs, useWriting } from "./drafts";
import { type Facts, useFacts } from "./facts";
import { useFollowing } from "./following";
import { isQuestion, isWaiting, unsentOf, withFinalText } from "./messages";
import { useSettling } from "./settling";
import { useSteered } from "./steered";
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
  /** What is sent when the running reply is finished. */
  queued: string;
  /** Puts it back into the composer. */
  unqueue: () => void;
  /** Sends it now, for the running reply to take in. */
  steer: () => void;
  /** What was sent into the running reply. */
  steered: string[];
  /** Sends now, or queues while a reply is running. */
  send: (text: string, choice: Choice) => void;
  edit: (messageId: string, text: string) => void;
  regenerate: (messageId?: string) => void;
  answerApproval: (id: string, approved: boolean) => void;
  stop: () => void;
  loadOlder: () => Promise<void>;
  /** The page shows a window around an older message; later ones are not loaded. */
  isPast: boolean;
  loadLater: () => Promise<void>;
  toNewest: () => Promise<unknown>;
  /** Changes the thread on the server, then reads it again. Null if it failed. */
  act: <T>(work: () => Promise<T>) => Promise<T | null>;
  /** Who answers from now on. A message that is sent in the same moment waits for it. */
  choose: (choice: Choice) => void;
}

export function useConversation(initial: History): Conversing {
  const { stateKey } = initial;
  const [thread, setThread] = useState<Thread>(initial);
  const [firstSeq, setFirstSeq] = useState(initial.firstSeq ?? 0);
  const [isPast, setPast] = useState(initial.isPast ?? false);
  const writing = useWriting(stateKey);
  const isThere = thread.id !== undefined;
  const [facts, refreshFacts] = useFacts(stateKey, isThere);
  const transport = useMemo(chatTransport, []);
  /** The question whose reply has a final text that replaces the streamed one. */
  const [corrected, setCorrected] = useState<string | undefined>(undefined);
  const chat = useChat({
    id: stateKey,
    messages: initial.messages,
    transport,
    // Only for threads that existed when the page opened: a turn started here is already being read.
    resume: initial.id !== undefined && !initial.isPast,
    throttle: DRAWN_EVERY_MS,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    // The protocol cannot retract output: when another process started the answer again, the stream is read again; when
    // the final text differs from what was streamed, the page hides that.
    onData: (part) => {
      if (part.type === "data-again") void chat.stop();
      if (part.type === "data-corrected") setCorrected(now.current.messages.findLast(isQuestion)?.id);
    },
  });
  const { messages, setMessages, status, error, clearError } = chat;
  const isBusy = status === "submitted" || status === "streaming";
  const isCorrected = isBusy && corrected !== undefined && corrected === messages.findLast(isQuestion)?.id;
  const now = useRef({ isBusy, error, messages, isPast, version: "" });
  Object.assign(now.current, { isBusy, error, messages, isPast });

  const { begin, settle } = useBeginning(stateKey);
  const refresh = useCallback(async (): Promise<History | null> => {
    const wanted = now.current.isPast ? PAGE : Math.max(PAGE, now.current.messages.length);
    const last = now.current.messages.at(-1);
    const fresh = await call<History>("GET", `${threadPath(stateKey)}?tail=${wanted}`);
    await settle(fresh);
    // The response is older than a message that was sent in between.
    if (now.current.isBusy || now.current.messages.at(-1)?.id !== last?.id) return null;
    const unsent = now.current.error ? unsentOf(now.current.messages, fresh.messages) : [];
    if (unsent.length) {
      const { draft, queued } = writing.held.current;
      writing.change({ draft: paragraphs(...unsent, queued, draft), queued: "" });
      toast(`Not sent: ${errorText(now.current.error)}`, { kind: "error" });
      clearError();
      if (!fresh.id) removeStarted(stateKey);
    }
    now.current.messages = fresh.messages;
    setPast(false);
    setThread(fresh);
    setFirstSeq(fresh.firstSeq ?? 0);
    setMessages(fresh.messages);
    refreshFacts();
    void refreshThreads();
    return fresh;
  }, [stateKey, setMessages, clearError, refreshFacts, settle, writing.held, writing.change]);

  const isResuming = useRef(false);
  /** Reads the stream of the running turn, unless this page already does. */
  const goOn = () => {
    if (now.current.isBusy || isResuming.current) return;
    isResuming.current = true;
    clearError();
    void chat.resumeStream().finally(() => {
      isResuming.current = false;
    });
  };

  /** After a failure it returns to the composer; while a tool waits for approval, the reply is not finished. */
  const sendQueued = (fresh: History) => {
    const { draft, queued } = writing.held.current;
    if (!queued || now.current.isBusy || isWaiting(fresh.messages.at(-1))) return;
    if (now.current.error) writing.change({ draft: paragraphs(queued, draft), queued: "" });
    else {
      writing.change({ queued: "" });
      void chat.sendMessage({ text: queued });
    }
  };

  const { steered, steer } = useSteered(stateKey, isBusy);

  useSettling({ status, isThere: messages.length > 0, refresh, goOn, sendQueued, stateKey });

  useFollowing(stateKey, (head: Head) => {
    const isShown = head.version === "none" || head.version === now.current.version;
    const isFirst = now.current.version === "";
    now.current.version = head.version;
    // What is new stands below a window that shows the past.
    if (isShown || isBusy || now.current.isPast) return;
    if (isFirst && head.messageCount === firstSeq + messages.length && !head.turnId) return;
    refresh().then(
      (fresh) => {
        if (!fresh) return;
        // The service knows how the turn ended, so an error from a lost connection is outdated.
        clearError();
        if (fresh.active) goOn();
        else sendQueued(fresh);
      },
      () => undefined, // The service cannot be reached; the next head arrives when it can.
    );
  });

  const act = useCallback(
    async <T>(work: () => Promise<T>): Promise<T | null> => {
      try {
        const done = await work();
        await refresh();
        return done;
      } catch (failure) {
        toast(errorText(failure), { kind: "error" });
        return null;
      }
    },
    [refresh],
  );

  const choosing = useRef<Promise<unknown>>(Promise.resolve());
  const choose = (choice: Choice) => {
    const { agentId: _agent, model: _model, ...rest } = thread;
    setThread({ ...rest, ...choice });
    const changes = { agentId: choice.agentId ?? null, model: choice.model ?? null };
    choosing.current = call("PATCH", threadPath(stateKey), changes).catch((failure: unknown) => {
      toast(errorText(failure), { kind: "error" });
      setThread(thread);
    });
  };

  const loadOlder = useCallback(async () => {
    if (firstSeq === 0) return;
    const from = Math.max(0, firstSeq - PAGE);
    const older = await call<History>("GET", `${threadPath(stateKey)}?first=${from}&last=${firstSeq - 1}`);
    if (now.current.isBusy) return;
    setFirstSeq(from);
    setMessages((shown) => [...older.messages, ...shown]);
  }, [stateKey, firstSeq, setMessages]);

  const loadLater = useCallback(async () => {
    const from = firstSeq + now.current.messages.length;
    const later = await call<History>("GET", `${threadPath(stateKey)}?first=${from}&last=${from + PAGE - 1}`);
    if (now.current.isBusy || !now.current.isPast) return;
    setMessages((shown) => [...shown, ...later.messages]);
    if (later.messages.length < PAGE) setPast(false);
  }, [stateKey, firstSeq, setMessages]);

  return {
    thread,
    messages: isCorrected ? messages.map(withFinalText) : messages,
    firstSeq,
    facts,
    isBusy,
    isStreaming: status === "streaming",
    error: error && errorText(error),
    draft: writing.draft,
    setDraft: (draft) => writing.change({ draft }),
    queued: writing.queued,
    unqueue: () => writing.change({ draft: paragraphs(writing.queued, writing.draft), queued: "" }),
    steered,
    steer: () => {
      const text = writing.queued;
      writing.change({ queued: "" });
      void steer(text).then((isSent) => {
        const { draft, queued } = writing.held.current;
        if (!isSent) writing.change({ draft: paragraphs(text, queued, draft), queued: "" });
      });
    },
    loadOlder,
    isPast,
    loadLater,
    toNewest: refresh,
    act,
    choose,
    send: (given, choice) => {
      const text = paragraphs(writing.queued, given);
      writing.change({ draft: "", queued: isBusy ? text : "" });
      if (!isThere && !isBusy) {
        addStarted(stateKey, text);
        begin(choice.model);
      }
      const more = isThere ? {} : { body: choice };
      const ready = isPast ? refresh() : choosing.current;
      if (!isBusy) void ready.then(() => chat.sendMessage({ text }, more));
    },
    edit: (messageId, text) => void chat.sendMessage({ text, messageId }),
    regenerate: (messageId) => void chat.regenerate(messageId ? { messageId } : {}),
    answerApproval: (id, approved) => void chat.addToolApprovalResponse({ id, approved }),
    // The client's own stop only disconnects; the service has to be told.
    stop: () =>
      void call("POST", `ai/chat/${encodeURIComponent(stateKey)}/stop`).then(
        () => undefined,
        () => chat.stop(),
      ),
  };
}
