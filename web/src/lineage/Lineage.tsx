/** A drawing of the thread's timelines, forks and saved points. Each can be clicked to switch to it. */
import { call, threadPath } from "../api";
import type { Conversing } from "../chat/conversation";
import { type DrawnPoint, draw } from "./drawing";

export function Lineage({ talk }: { talk: Conversing }) {
  const { timelines, saves } = talk.facts;
  if (!timelines.length) return <p>Versions appear here after the first message.</p>;
  const { width, height, lines, points } = draw(timelines, saves);
  const path = threadPath(talk.thread.stateKey);
  const go = (point: DrawnPoint) => {
    if (talk.isBusy) return;
    if (point.kind === "save") void talk.act(() => call("POST", `${path}/load`, { name: point.label }));
    else if (!point.isCurrent) void talk.act(() => call("POST", `${path}/switch`, { timelineId: point.timelineId }));
  };
  return (
    <div class="lineage">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
        {lines.map((line) => (
          <path key={line.key} d={line.d} class={line.isCurrent ? "line line-current" : "line"} />
        ))}
        {points.map((point) => (
          <Knot key={point.key} point={point} onGo={() => go(point)} />
        ))}
      </svg>
      <ul class="lineage-labels" style={{ height: `${height}px` }} aria-label="Versions">
        {points.map((point) => (
          <li key={point.key} style={{ top: `${point.y - 17}px` }}>
            <button
              type="button"
              class={point.isCurrent && point.kind === "end" ? "lineage-label lineage-current" : "lineage-label"}
              aria-current={point.isCurrent && point.kind === "end" ? "true" : undefined}
              title={point.kind === "save" ? `Load “${point.label}”` : point.label}
              onClick={() => go(point)}
            >
              <span>{point.label}</span>
              <small>{point.detail}</small>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Knot({ point, onGo }: { point: DrawnPoint; onGo: () => void }) {
  const { x, y, isCurrent } = point;
  const named = isCurrent ? "knot knot-current" : "knot";
  if (point.kind === "save")
    // biome-ignore lint/a11y/noStaticElementInteractions: the rows beside the drawing are the buttons for it
    return <path class={`${named} knot-save`} d={`M${x} ${y - 6}l6 6-6 6-6-6z`} onClick={onGo} />;
  // biome-ignore lint/a11y/noStaticElementInteractions: the rows beside the drawing are the buttons for it
  return <circle class={named} cx={x} cy={y} r={isCurrent ? 5.5 : 4.5} onClick={onGo} />;
}
