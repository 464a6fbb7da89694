/**
 * The list of threads, latest activity first. Read again after each change on this page, when the window gets the focus,
 * and at intervals.
 */
import { call, errorText, type Hit, type Thread, type ThreadPage, threadPath } from "../api";
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

export const listing = new Cell<Listing>({ state: "loading", threads: [], archived: false });

let asked = 0;

export async function refresh(archived = listing.get().archived): Promise<void> {
  const mine = ++asked;
  const before = listing.get();
  const sameList = before.archived === archived;
  if (!sameList) listing.set({ state: "loading", threads: [], archived });
  try {
    const page = await call<ThreadPage>("GET", `ai/threads?limit=${PAGE}&archived=${archived}`);
    if (mine !== asked) return;
    const kept = sameList ? rest(listing.get(), page) : { threads: [], nextCursor: page.nextCursor };
    listing.set({ state: "ready", threads: [...page.threads, ...kept.threads], nextCursor: kept.nextCursor, archived });
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
  const older = before.threads.filter((thread) => !fresh.has(thread.id) && (thread.updatedAt ?? "") <= last);
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

export async function search(words: string, signal: AbortSignal): Promise<Hit[]> {
  return (await call<{ hits: Hit[] }>("GET", `ai/threads?q=${encodeURIComponent(words)}`, undefined, signal)).hits;
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
