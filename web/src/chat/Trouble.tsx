/** The error of the last turn, with a button to retry. */
import { Icon } from "../ui/icons";
import type { Conversing } from "./conversation";
import { turnIdOf } from "./facts";

const FAILED = new Set([
  "dispatch_failed",
  "interrupted",
  "denied_rbac",
  "denied_no_agent",
  "denied_sentinel",
  "denied_budget",
]);

export function Trouble({ talk }: { talk: Conversing }) {
  const trouble = troubleOf(talk);
  if (!trouble || talk.isBusy) return null;
  return (
    <div class="trouble" role="alert">
      <Icon name="alert" />
      <p>{trouble}</p>
      <button type="button" class="button" onClick={() => talk.regenerate()}>
        Try again
      </button>
    </div>
  );
}

function troubleOf({ messages, firstSeq, facts, error }: Conversing): string | undefined {
  const last = messages.at(-1);
  if (!last) return undefined;
  if (error) return error;
  const turnId = turnIdOf(last.id);
  const seq = firstSeq + messages.length - 1;
  const newest = facts.turns.values().next().value;
  const turn = turnId ? facts.turns.get(turnId) : newest?.requestSeq === seq ? newest : undefined;
  if (!turn || !FAILED.has(turn.status)) return undefined;
  return turn.error ?? "The answer was interrupted.";
}
