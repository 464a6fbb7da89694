/** Messages that are sent while a reply runs: it takes each in before its next step, or they are answered after it. */
import { generateId } from "ai";
import { useEffect, useState } from "preact/hooks";
import { errorText, post } from "../api";
import { toast } from "../ui/toasts";

export interface Steered {
  /** Sent since the reply began; the history has them when it is finished. */
  steered: string[];
  steer: (text: string) => Promise<boolean>;
}

export function useSteered(stateKey: string, isBusy: boolean): Steered {
  const [steered, setSteered] = useState<string[]>([]);
  useEffect(() => {
    if (!isBusy) setSteered([]);
  }, [isBusy]);
  const steer = async (text: string): Promise<boolean> => {
    const message = { id: generateId(), role: "user", parts: [{ type: "text", text }] };
    try {
      await post("ai/chat", { id: stateKey, policy: "steer", message });
    } catch (failure) {
      toast(`Not sent: ${errorText(failure)}`, { kind: "error" });
      return false;
    }
    setSteered((earlier) => [...earlier, text]);
    return true;
  };
  return { steered, steer };
}
