/**
 * The list of threads, latest activity first. Read again after each change on this page, when the window gets the focus,
 * and at intervals.
 */
import { call, errorText, type FoundPage, type Thread, type ThreadPage, threadPath } from "../api";
import { Cell } from "../cell";
import { toast } from "../ui/toasts";

export interface Listing {
  state: "loading" | "ready" | "failed";
  threads: Thread[];
  nextCursor?: string | undefined;
  archived: boolean;
  failure?: string;
}

const PAGE = 40;
const TITLE = 80;

export const listing = new Cell<Listing>({ state: "loading", threads: [], archived: false });

let asked = 0;

/** Threads that were started here and have no title yet: their first question stands in the list at once. */
const started = new Map<string, { title: string; isListed: boolean }>();

export function addStarted(stateKey: string, question: string): void {
  started.set(stateKey, { title: question.slice(0, TITLE), isListed: false });
  listing.change((shown) => ({ ...shown, threads: withStarted(shown.threads, shown.archived) }));
}

/** The first question was not stored: there is no such thread. */
export function removeStarted(stateKey: string): void {
  if (!started.delete(stateKey)) return;
  listing.change((shown) => ({
    ...shown,
    threads: shown.threads.filter((thread) => thread.id !== undefined || thread.stateKey !== stateKey),
  }));
}

function withStarted(threads: Thread[], archived: boolean): Thread[] {
  if (archived || !started.size) return threads;
  const listed = threads.map((thread) => {
    const known = started.get(thread.stateKey);
    if (!known || thread.id === undefined) return thread;
    if (thread.title) started.delete(thread.stateKey);
    known.isListed = true;
    return { ...thread, title: thread.title || known.title };
  });
  const keys = new Set(listed.map((thread) => thread.stateKey));
  const added = [...started].filter(([stateKey, { isListed }]) => !isListed && !keys.has(stateKey));
  return [...added.reverse().map(([stateKey, { title }]) => ({ stateKey, title })), ...listed];
}

export async function refresh(archived = listing.get().archived): Promise<void> {
  const mine = ++asked;
  const before = listing.get();
  const sameList = before.archived === archived;
  if (!sameList) listing.set({ state: "loading", threads: [], archived });
  try {
    const page = await call<ThreadPage>("GET", `ai/threads?limit=${PAGE}&archived=${archived}`);
    if (mine !== asked) return;
    const kept = sameList ? rest(listing.get(), page) : { threads: [], nextCursor: page.nextCursor };
    const threads = withStarted([...page.threads, ...kept.threads], archived);
    listing.set({ state: "ready", threads, nextCursor: kept.nextCursor, archived });
  } catch (error) {
    if (mine !== asked) return;
    const shown = listing.get();
    listing.set(shown.threads.length ? shown : { ...shown, state: "failed", failure: errorText(error) });
  }
}

/** Keeps the loaded threads below the first page, without those that moved up into it. */
function rest(before: Listing, page: ThreadPage): Pick<Listing, "threads" | "nextCursor"> {
  if (before.threads.length <= PAGE) return { threads: [], nextCursor: page.nextCursor };
  const fresh = new Set(page.threads.map((thread) => thread.id));
  const last = page.threads.at(-1)?.updatedAt ?? "";
  const older = before.threads.filter(({ id, updatedAt = "" }) => id && !fresh.has(id) && updatedAt <= last);
  return { threads: older, nextCursor: before.nextCursor };
}

export async function more(): Promise<void> {
  const before = listing.get();
  if (!before.nextCursor) return;
  const mine = ++asked;
  const query = `limit=${PAGE}&archived=${before.archived}&cursor=${encodeURIComponent(before.nextCursor)}`;
  try {
    const page = await call<ThreadPage>("GET", `ai/threads?${query}`);
    if (mine !== asked) return;
    const shown = new Set(before.threads.map((thread) => thread.id));
    const added = page.threads.filter((thread) => !shown.has(thread.id));
    listing.set({ ...before, threads: [...before.threads, ...added], nextCursor: page.nextCursor });
  } catch (error) {
    toast(errorText(error), { kind: "error" });
  }
}

export function search(words: string, signal: AbortSignal, cursor?: string): Promise<FoundPage> {
  const after = cursor === undefined ? "" : `&cursor=${encodeURIComponent(cursor)}`;
  return call<FoundPage>("GET", `ai/search?q=${encodeURIComponent(words)}${after}`, undefined, signal);
}

export async function rename(thread: Thread, title: string): Promise<void> {
  await act(() => call("PATCH", threadPath(thread.stateKey), { title }));
}

export async function archive(thread: Thread, archived: boolean): Promise<void> {
  const done = await act(() => call("PATCH", threadPath(thread.stateKey), { archived }));
  if (done) {
    const undo = { label: "Undo", run: () => void archive(thread, !archived) };
    toast(archived ? "Archived." : "Unarchived.", { action: undo });
  }
}

export async function remove(thread: Thread): Promise<void> {
  started.delete(thread.stateKey);
  const done = await act(() => call("DELETE", threadPath(thread.stateKey)));
  if (!done || !thread.id) return;
  const restore = () => void act(() => call("POST", "ai/threads/restore", { id: thread.id }));
  toast("Deleted.", { action: { label: "Undo", run: restore } });
}

async function act(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
  } catch (error) {
    toast(errorText(error), { kind: "error" });
    return false;
  }
  await refresh();
  return true;
}
