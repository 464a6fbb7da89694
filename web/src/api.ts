/**
 * Requests to the service, relative to where the page is mounted. Errors are sentences that may be shown; a 401 asks
 * for a token, whoever made the request.
 */
import type { UIMessage } from "ai";
import { askToSignIn, authorization } from "./session";

export interface Thread {
  stateKey: string;
  id?: string;
  title?: string;
  agentId?: string;
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

export interface Turn {
  id: string;
  status: string;
  surface: string;
  agentId?: string;
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

/** The fetch of this page: signs requests, and asks for a token when the service wants one. */
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
  if (!answer.ok) throw new ApiError(answer.status, await sentence(answer));
  return (answer.status === 204 ? undefined : await answer.json()) as T;
}

async function sentence(answer: Response): Promise<string> {
  try {
    const problem = (await answer.json()) as { detail?: string };
    if (problem.detail) return problem.detail;
  } catch {
    // Not of this service: a proxy, perhaps. Its page is not for showing.
  }
  return `The service answered ${answer.status}.`;
}

/** What to tell a person about anything that was thrown. */
export function told(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (error instanceof TypeError) return "The service cannot be reached.";
  if (error instanceof Error) return problemDetail(error.message) ?? error.message;
  return String(error);
}

/** useChat makes an error's message of the whole body of an answer. */
function problemDetail(text: string): string | undefined {
  if (!text.startsWith("{")) return undefined;
  try {
    return (JSON.parse(text) as { detail?: string }).detail;
  } catch {
    return undefined;
  }
}
