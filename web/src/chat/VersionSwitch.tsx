/** ‹ 2/3 ›: goes from one version of a question or an answer to another. */
import { call, threadPath } from "../api";
import type { Versions } from "../lineage/versions";
import { IconButton } from "../ui/IconButton";
import type { Conversing } from "./conversation";

interface Props {
  versions: Versions | undefined;
  talk: Conversing;
  what: "question" | "answer";
}

export function VersionSwitch({ versions, talk, what }: Props) {
  if (!versions) return null;
  const { at, timelineIds } = versions;
  const go = (to: number) => {
    const timelineId = timelineIds[to];
    void talk.act(() => call("POST", `${threadPath(talk.thread.stateKey)}/switch`, { timelineId }));
  };
  return (
    <span class="versions" role="group" aria-label={`Versions of this ${what}`}>
      <IconButton icon="left" label="Previous version" disabled={at === 0 || talk.isBusy} onClick={() => go(at - 1)} />
      <span class="versions-count">
        {at + 1}/{timelineIds.length}
      </span>
      <IconButton
        icon="right"
        label="Next version"
        disabled={at === timelineIds.length - 1 || talk.isBusy}
        onClick={() => go(at + 1)}
      />
    </span>
  );
}
