/** What is known about a thread beside its messages: its turns by id, its timelines and saved points. */
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { call, type SavedPoint, type Timeline, type Turn, threadPath } from "../api";
import { type Versions, versionsOf } from "../lineage/versions";

const REPLY = "-reply";

export interface Facts {
  turns: ReadonlyMap<string, Turn>;
  timelines: Timeline[];
  saves: SavedPoint[];
  versions: ReadonlyMap<number, Versions>;
}

const NOTHING: Facts = { turns: new Map(), timelines: [], saves: [], versions: new Map() };

export function useFacts(stateKey: string, isThere: boolean): [Facts, () => void] {
  const [facts, setFacts] = useState<Facts>(NOTHING);
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    if (!isThere) return;
    const asking = new AbortController();
    const path = threadPath(stateKey);
    Promise.all([
      call<{ turns: Turn[] }>("GET", `${path}/turns?limit=200`, undefined, asking.signal),
      call<{ timelines: Timeline[]; saves: SavedPoint[] }>("GET", `${path}/lineage`, undefined, asking.signal),
    ]).then(
      ([{ turns }, { timelines, saves }]) => {
        const byId = new Map(turns.map((turn) => [turn.id, turn]));
        setFacts({ turns: byId, timelines, saves, versions: versionsOf(timelines) });
      },
      () => undefined, // The conversation is readable without them, and the next refresh tries again.
    );
    return () => asking.abort();
  }, [stateKey, isThere, asked]);
  const refresh = useCallback(() => setAsked((count) => count + 1), []);
  return useMemo(() => [facts, refresh], [facts, refresh]);
}

/** The turn of a reply: a reply's id is its turn's id with a suffix. */
export function turnIdOf(messageId: string): string | undefined {
  return messageId.endsWith(REPLY) ? messageId.slice(0, -REPLY.length) : undefined;
}
