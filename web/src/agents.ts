/** The available agents, read once per token, because several components use them. */
import { useEffect, useState } from "preact/hooks";
import { type Agents, call } from "./api";
import { token } from "./session";

const held = new Map<string, Promise<Agents>>();

function read(): Promise<Agents> {
  const who = token() ?? "";
  const found = held.get(who) ?? call<Agents>("GET", "agents");
  held.set(who, found);
  found.catch(() => held.delete(who));
  return found;
}

/** Null until they are loaded. */
export function useAgents(): Agents | null {
  const [agents, setAgents] = useState<Agents | null>(null);
  useEffect(() => {
    read().then(setAgents, () => undefined); // Components that need them stay hidden; the next one tries again.
  }, []);
  return agents;
}

export function agentIds({ agents, shared }: Agents): string[] {
  return [...new Set([...shared, ...agents.filter((agent) => agent.enabled).map((agent) => agent.id)])];
}

export function agentName(agents: Agents | null, id: string | undefined): string | undefined {
  return agents?.agents.find((agent) => agent.id === id)?.name || id;
}
