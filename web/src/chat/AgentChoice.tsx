/** Which agent answers the next message, and with which model, if there is a choice. The thread remembers it. */
import { agentIds, agentName, useAgents } from "../agents";
import type { Thread } from "../api";
import type { Conversing } from "./conversation";

export type Choice = Pick<Thread, "agentId" | "model">;

interface Props {
  talk: Conversing;
  /** For a thread that is not stored yet. */
  chosen: Choice;
  onChoose: (choice: Choice) => void;
}

export function AgentChoice({ talk, chosen, onChoose }: Props) {
  const agents = useAgents();
  if (!agents) return null;
  const { thread, isBusy } = talk;
  const current = thread.id ? thread : chosen;
  const agentId = current.agentId ?? agents.default ?? "";
  const ids = [...new Set([...agentIds(agents), agentId])];
  const models = agents.models?.[agentId] ?? [];
  const choose = thread.id ? talk.choose : onChoose;
  const change = (agentId: string, model: string) => choose(model ? { agentId, model } : { agentId });
  if (ids.length < 2 && models.length < 2) return null;
  return (
    <div class="agent-choice">
      {ids.length > 1 && (
        <label>
          Agent
          <select value={agentId} disabled={isBusy} onChange={(event) => change(event.currentTarget.value, "")}>
            {ids.map((id) => (
              <option key={id} value={id}>
                {agentName(agents, id)}
              </option>
            ))}
          </select>
        </label>
      )}
      {models.length > 1 && (
        <label>
          Model
          <select
            value={current.model ?? ""}
            disabled={isBusy}
            onChange={(event) => change(agentId, event.currentTarget.value)}
          >
            <option value="">default</option>
            {models.map((model) => (
              <option key={model}>{model}</option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}
