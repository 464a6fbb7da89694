/** Requests to the service, relative to where the page is mounted. Any response with status 401 opens the sign-in form. */
import type { UIMessage } from "ai";
import { askToSignIn, authorization } from "./session";

export interface Thread {
  stateKey: string;
  id?: string;
  title?: string;
  agentId?: string;
  model?: string;
  timelineId?: string;
  messageCount?: number;
  tokenCount?: number;
  surfaces?: string[];
  createdAt?: string;
  updatedAt?: string;
  archivedAt?: string;
}

export interface ThreadPage {
  threads: Thread[];
  nextCursor?: string;
}

export interface History extends Thread {
  messages: UIMessage[];
  firstSeq?: number;
  active?: boolean;
  /** The messages are a window around an older one; later messages are not loaded. */
  isPast?: boolean;
}

export interface Hit {
  stateKey: string;
  title?: string;
  messageId: string;
  seq: number;
  role: string;
  snippet: string;
  createdAt: string;
}

export interface FoundThread {
  threadId: string;
  stateKey: string;
  title?: string;
  updatedAt: string;
  titleMatch: boolean;
  hitCount: number;
  hits: Hit[];
}

export interface FoundPage {
  threads: FoundThread[];
  nextCursor?: string;
}

export interface Turn {
  id: string;
  status: string;
  surface: string;
  agentId?: string;
  model?: string;
  error?: string;
  usage?: Record<string, number>;
  requestSeq?: number;
  replySeq?: number;
  createdAt?: string;
  finishedAt?: string;
}

export interface Seen extends Turn {
  system: string[];
  messages: UIMessage[];
  messagesLeftOut: number;
  tokens: number;
}

/** Empty if the thread has none. */
export interface Summary {
  seq?: number;
  text?: string;
  createdAt?: string;
  source?: "model" | "extract" | "person";
  model?: string;
}

export interface Timeline {
  id: string;
  current: boolean;
  parent?: { timelineId: string; seq: number };
  messageCount: number;
  createdAt: string;
  begins?: { id: string; role: string; text: string };
  /** Whether it begins with the same question that stands in its place on its parent. */
  repeats?: boolean;
}

export interface SavedPoint {
  name: string;
  threadId: string;
  timelineId: string;
  seq: number;
  createdAt: string;
}

export interface Head {
  version: string;
  messageCount: number;
  timelineId?: string;
  turnId?: string;
}

export interface Agents {
  agents: { id: string; name: string; enabled: boolean }[];
  shared: string[];
  default?: string;
  /** By agent: those that a thread may choose. */
  models?: Record<string, string[]>;
}

export interface Place {
  surface: string;
  place: string;
  label?: string;
}

export interface Link {
  platform: string;
  platformUserId: string;
  userId: string;
  state: string;
}

export interface LinkCode {
  code: string;
  expiresAt: string;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export function address(path: string): string {
  return new URL(`api/v1/${path}`, document.baseURI).href;
}

export function threadPath(stateKey: string): string {
  return `ai/threads/${encodeURIComponent(stateKey)}`;
}

/** `fetch` with the token of this tab. Opens the sign-in form if the service requires another one. */
export const signedFetch: typeof fetch = async (input, init) => {
  const headers = new Headers(init?.headers);
  for (const [name, value] of Object.entries(authorization())) headers.set(name, value);
  const answer = await fetch(input, { ...init, headers });
  if (answer.status === 401) askToSignIn();
  return answer;
};

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { method };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  const answer = await signedFetch(address(path), init);
  if (!answer.ok) throw new ApiError(answer.status, await detailOf(answer));
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

/** Sends what is answered with a stream, and does not read it. */
export async function post(path: string, body: unknown): Promise<void> {
  const headers = { "content-type": "application/json" };
  const answer = await signedFetch(address(path), { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new ApiError(answer.status, await detailOf(answer));
  await answer.body?.cancel();
}

async function detailOf(answer: Response): Promise<string> {
  try {
    const problem = (await answer.json()) as { detail?: string };
    if (problem.detail) return problem.detail;
  } catch {
    // Not JSON: an error page of a proxy, perhaps.
  }
  return `the service responded with status ${answer.status}`;
}

/** Anything that was thrown, as a sentence to show. */
export function errorText(error: unknown): string {
  if (error instanceof ApiError) return sentence(error.message);
  if (error instanceof TypeError) return "The service cannot be reached.";
  if (error instanceof Error) return sentence(problemDetail(error.message) ?? error.message);
  return sentence(String(error));
}

/** Details of problems have no capital letter and no full stop. */
function sentence(text: string): string {
  const capitalised = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…”]$/.test(text) ? capitalised : `${capitalised}.`;
}

/** useChat puts the whole body of a failed response into the error's message. */
function problemDetail(text: string): string | undefined {
  if (!text.startsWith("{")) return undefined;
  try {
    return (JSON.parse(text) as { detail?: string }).detail;
  } catch {
    return undefined;
  }
}
