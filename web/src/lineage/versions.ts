/**
 * The arithmetic of versions: where the history that is shown has others beside it, and how to get to them.
 *
 * A timeline holds the messages after its parent's seq; what stands before belongs to the parent. Two timelines have
 * the same message at a seq if the same timeline owns it there.
 */
import type { Timeline } from "../api";

export interface Versions {
  seq: number;
  /** Which of `timelineIds` is shown now. */
  at: number;
  /** For each version the newest timeline that holds it. */
  timelineIds: string[];
  /** Whether all of them ask the same, so that it is the answers that differ. */
  isAnswers: boolean;
}

/**
 * The timelines that are versions of their own. A reply that waited for an approval is stored once more when it goes
 * on, on a timeline that begins with it: what it replaced is a stage, not a version.
 */
export function versionsAmong(all: readonly Timeline[]): Timeline[] {
  const replaced = new Set<string>();
  const latest = new Map<string, Timeline>();
  for (const each of all) {
    if (each.begins?.role !== "assistant" || !each.parent) continue;
    const { timelineId, seq } = each.parent;
    const before = latest.get(`${timelineId} ${seq}`);
    if (before) replaced.add(before.id);
    latest.set(`${timelineId} ${seq}`, each);
    const parent = all.find((timeline) => timeline.id === timelineId);
    if (parent && parent.messageCount - 1 === seq + 1) replaced.add(parent.id);
  }
  return all.filter((timeline) => timeline.current || (timeline.begins && !replaced.has(timeline.id)));
}

export function ownerAt(timelines: ReadonlyMap<string, Timeline>, id: string, seq: number): string {
  let owner = id;
  for (let found = timelines.get(owner); found?.parent && seq <= found.parent.seq; found = timelines.get(owner))
    owner = found.parent.timelineId;
  return owner;
}

/** By seq, for the history of the timeline that is current. */
export function versionsOf(all: readonly Timeline[]): Map<number, Versions> {
  const timelines = new Map(all.map((timeline) => [timeline.id, timeline]));
  const current = all.find((timeline) => timeline.current);
  const found = new Map<number, Versions>();
  if (!current) return found;
  for (const seq of new Set(
    all.filter((each) => each.begins?.role === "user").map((each) => (each.parent?.seq ?? -1) + 1),
  )) {
    if (seq >= current.messageCount) continue;
    const beside = all.filter((each) => each.messageCount > seq && isBeside(timelines, current.id, each.id, seq));
    const newest = new Map<string, Timeline>();
    for (const each of beside) newest.set(ownerAt(timelines, each.id, seq), each);
    if (newest.size < 2) continue;
    const owners = [...newest.keys()].sort((one, other) => order(all, one) - order(all, other));
    found.set(seq, {
      seq,
      at: owners.indexOf(ownerAt(timelines, current.id, seq)),
      timelineIds: owners.map((owner) => newest.get(owner)?.id ?? owner),
      isAnswers: owners.slice(1).every((owner) => timelines.get(owner)?.repeats),
    });
  }
  return found;
}

function isBeside(timelines: ReadonlyMap<string, Timeline>, one: string, other: string, seq: number): boolean {
  return seq === 0 || ownerAt(timelines, one, seq - 1) === ownerAt(timelines, other, seq - 1);
}

function order(all: readonly Timeline[], id: string): number {
  return all.findIndex((timeline) => timeline.id === id);
}
