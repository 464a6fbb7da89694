/** A tool call, folded to one line: input, output, and the approval request. */
import type { DynamicToolUIPart, ToolUIPart } from "ai";
import { CopyButton } from "../ui/CopyButton";
import { Icon } from "../ui/icons";

type ToolPart = ToolUIPart | DynamicToolUIPart;

const STATES: Record<string, string> = {
  "input-streaming": "preparing",
  "input-available": "running",
  "approval-requested": "needs approval",
  "approval-responded": "answered",
  "output-available": "done",
  "output-error": "failed",
  "output-denied": "denied",
};

interface Props {
  name: string;
  part: ToolPart;
  onApproval: (id: string, approved: boolean) => void;
}

export function ToolCard({ name, part, onApproval }: Props) {
  const isAsking = part.state === "approval-requested";
  return (
    <details class={`card tool tool-${part.state}`} open={isAsking || undefined}>
      <summary>
        <Icon name="tool" />
        <span class="tool-name">{name}</span>
        <span class="tool-input">{oneLine(part.input)}</span>
        <span class="tool-state">{STATES[part.state] ?? part.state}</span>
      </summary>
      <div class="card-body">
        <Value title="Input" value={part.input} />
        {part.state === "output-available" && <Value title="Output" value={part.output} />}
        {part.state === "output-error" && <Value title="Error" value={part.errorText} />}
        {isAsking && (
          <div class="approval">
            <p>Allow {name} to run with this input?</p>
            <button type="button" class="button" onClick={() => onApproval(part.approval.id, false)}>
              Deny
            </button>
            <button type="button" class="button button-primary" onClick={() => onApproval(part.approval.id, true)}>
              Allow
            </button>
          </div>
        )}
      </div>
    </details>
  );
}

function Value({ title, value }: { title: string; value: unknown }) {
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
  return (
    <div class="value">
      <div class="value-head">
        <span>{title}</span>
        <CopyButton text={text} label={`Copy ${title.toLowerCase()}`} />
      </div>
      <pre tabIndex={0} role="group" aria-label={title}>
        {text}
      </pre>
    </div>
  );
}

function oneLine(input: unknown): string {
  if (input === null || input === undefined) return "";
  const values = typeof input === "object" && !Array.isArray(input) ? Object.values(input) : [input];
  return values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(", ");
}
