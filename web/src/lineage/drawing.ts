/**
 * The arithmetic of the lineage picture: a column for each timeline, downwards in the order of the conversation, a
 * line of text for each end and each saved point. Pure, so that the drawing only draws.
 */
import type { SavedPoint, Timeline } from "../api";
import { ownerAt, versionsAmong } from "./versions";

export const LANE = 18;
const ROW = 34;
const FORK = 14;
const TOP = 16;

export interface DrawnPoint {
  key: string;
  kind: "end" | "save";
  x: number;
  y: number;
  timelineId: string;
  label: string;
  detail: string;
  isCurrent: boolean;
}

export interface DrawnLine {
  key: string;
  d: string;
  isCurrent: boolean;
}

export interface Drawing {
  width: number;
  height: number;
  lines: DrawnLine[];
  points: DrawnPoint[];
}

type Placed = Omit<DrawnPoint, "y"> & { seq: number };

export function draw(all: readonly Timeline[], saves: readonly SavedPoint[]): Drawing {
  const timelines = new Map(all.map((timeline) => [timeline.id, timeline]));
  const versions = versionsAmong(all);
  const shown = all.filter((timeline) => versions.includes(timeline) || isParent(versions, timeline.id));
  const laneOf = lanesOf(shown, versions);
  const current = all.find((timeline) => timeline.current);
  const isOnPath = (id: string, seq: number) => !!current && ownerAt(timelines, current.id, seq) === id;

  const placed: Placed[] = [
    ...versions.map((timeline) => endOf(timeline, laneOf)),
    ...saves.map((save) => saveOf(save, ownerAt(timelines, save.timelineId, save.seq), laneOf, isOnPath)),
  ];
  const forks = shown.flatMap((timeline) => (timeline.parent ? [timeline.parent.seq] : []));
  const { points, ends, height } = stack(placed, forks);
  const lines = shown.map((timeline) => lineOf(timeline, laneOf, points, ends));
  const path = current ? pathOf(current, timelines, laneOf, points, ends) : [];
  const width = 4 + LANE / 2 + Math.max(0, ...shown.map((timeline) => laneOf(timeline.id)));
  return { width, height, lines: [...lines, ...path], points };
}

function isParent(all: readonly Timeline[], id: string): boolean {
  return all.some((timeline) => timeline.parent?.timelineId === id);
}

/** A column for each; a version takes that of its parent if the parent is none itself and has no other yet. */
function lanesOf(shown: readonly Timeline[], versions: readonly Timeline[]): (id: string) => number {
  const lanes = new Map<string, number>();
  const taken = new Set<string>();
  let count = 0;
  for (const { id, parent } of shown) {
    const isFree = parent && lanes.has(parent.timelineId) && !taken.has(parent.timelineId);
    if (isFree && !versions.some((version) => version.id === parent.timelineId)) {
      taken.add(parent.timelineId);
      lanes.set(id, lanes.get(parent.timelineId) ?? 0);
    } else lanes.set(id, count++);
  }
  return (id) => LANE / 2 + 4 + (lanes.get(id) ?? 0) * LANE;
}

function endOf(timeline: Timeline, laneOf: (id: string) => number): Placed {
  const count = timeline.messageCount;
  return {
    key: timeline.id,
    kind: "end",
    x: laneOf(timeline.id),
    seq: count - 1,
    timelineId: timeline.id,
    label: timeline.begins?.text || "Start of the thread",
    detail: `${count} ${count === 1 ? "message" : "messages"}`,
    isCurrent: timeline.current,
  };
}

function saveOf(
  save: SavedPoint,
  owner: string,
  laneOf: (id: string) => number,
  isOnPath: (id: string, seq: number) => boolean,
): Placed {
  return {
    key: `save ${save.name}`,
    kind: "save",
    x: laneOf(owner),
    seq: save.seq,
    timelineId: owner,
    label: save.name,
    detail: "saved point",
    isCurrent: isOnPath(owner, save.seq),
  };
}

/** Gives each point its line, and each seq the place where a fork at it leaves. */
function stack(placed: Placed[], forks: number[]): { points: DrawnPoint[]; ends: Map<number, number>; height: number } {
  const points: DrawnPoint[] = [];
  const ends = new Map<number, number>();
  let y = TOP;
  for (const seq of [...new Set([...placed.map((point) => point.seq), ...forks])].sort((one, other) => one - other)) {
    const here = placed.filter((point) => point.seq === seq).sort(byLane);
    for (const { seq: _, ...point } of here) {
      points.push({ ...point, y });
      ends.set(seq, y);
      y += ROW;
    }
    if (!here.length) {
      ends.set(seq, y);
      y += FORK;
    }
  }
  return { points, ends, height: y - (points.length ? TOP : 0) + 2 };
}

/** Saved points before the end they may stand on, so that the line reaches them all. */
function byLane(one: Placed, other: Placed): number {
  return one.x - other.x || Number(one.kind === "end") - Number(other.kind === "end");
}

function lineOf(
  timeline: Timeline,
  laneOf: (id: string) => number,
  points: DrawnPoint[],
  ends: Map<number, number>,
): DrawnLine {
  const to = points.find((point) => point.key === timeline.id)?.y ?? lastFork(timeline, ends);
  return { key: timeline.id, d: stretch(timeline, laneOf, ends, to), isCurrent: false };
}

function lastFork(timeline: Timeline, ends: Map<number, number>): number {
  const reached = [...ends].filter(([seq]) => seq < timeline.messageCount).map(([, y]) => y);
  return Math.max(TOP, ...reached);
}

/** From where a timeline leaves its parent, or begins, down to `to`. */
function stretch(timeline: Timeline, laneOf: (id: string) => number, ends: Map<number, number>, to: number): string {
  const x = laneOf(timeline.id);
  const fork = timeline.parent;
  if (!fork || fork.seq < 0) return `M${x} ${TOP - 10}V${Math.max(to, TOP)}`;
  const from = laneOf(fork.timelineId);
  const y = ends.get(fork.seq) ?? TOP;
  const bend = Math.min(y + FORK, Math.max(to, y + 2));
  return `M${from} ${y}C${from} ${bend} ${x} ${y} ${x} ${bend}V${Math.max(to, bend)}`;
}

/** The history that is shown, through all the timelines it runs on. */
function pathOf(
  current: Timeline,
  timelines: ReadonlyMap<string, Timeline>,
  laneOf: (id: string) => number,
  points: DrawnPoint[],
  ends: Map<number, number>,
): DrawnLine[] {
  const lines: DrawnLine[] = [];
  let to = points.find((point) => point.key === current.id)?.y ?? TOP;
  for (let at: Timeline | undefined = current; at; ) {
    lines.push({ key: `path ${at.id}`, d: stretch(at, laneOf, ends, to), isCurrent: true });
    if (!at.parent || at.parent.seq < 0) break;
    to = ends.get(at.parent.seq) ?? TOP;
    at = timelines.get(at.parent.timelineId);
  }
  return lines;
}
