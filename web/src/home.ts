/** The home thread: the one that the user's private chats on platforms continue. */
import { call, type Thread } from "./api";
import { Cell } from "./cell";

interface Home {
  thread?: Thread;
}

interface Values {
  values: { data?: string }[];
}

const NAMESPACE = "page";
const KEY = "new-threads-are-home";

/** Its id; undefined while it is not known, and if there is none. */
export const homeId = new Cell<string | undefined>(undefined);

export async function loadHome(): Promise<void> {
  homeId.set((await call<Home>("GET", "me/home")).thread?.id);
}

export async function makeHome(stateKey: string): Promise<void> {
  homeId.set((await call<Home>("PUT", "me/home", { thread: stateKey })).thread?.id);
}

/** Whether each thread that is begun on this page becomes the home thread: a value of the user, on every device. */
export async function areNewThreadsHome(): Promise<boolean> {
  const found = await call<Values>("GET", `ai/values?namespace=${NAMESPACE}&key=${KEY}`);
  return found.values.length > 0;
}

export async function setNewThreadsHome(isOn: boolean): Promise<void> {
  const data = isOn ? { data: btoa("true") } : {};
  await call("POST", "ai/values", { changes: [{ namespace: NAMESPACE, key: KEY, scope: "user", ...data }] });
}

/** For a thread that was begun here. */
export async function makeHomeIfWanted(stateKey: string): Promise<void> {
  if (await areNewThreadsHome()) await makeHome(stateKey);
}
