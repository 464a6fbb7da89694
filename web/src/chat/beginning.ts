/** What follows the first message of a thread that is begun on this page, once the thread is stored. */
import { useMemo } from "preact/hooks";
import { call, errorText, type History, threadPath } from "../api";
import { makeHomeIfWanted } from "../home";
import { toast } from "../ui/toasts";

interface Beginning {
  /** The first message is sent; it names a model for one turn. */
  begin: (model: string | undefined) => void;
  /** The thread as it is stored: it gets that model. */
  settle: (fresh: History) => Promise<void>;
}

export function useBeginning(stateKey: string): Beginning {
  return useMemo(() => {
    let begun: { model: string | undefined } | undefined;
    return {
      begin: (model) => {
        begun = { model };
      },
      settle: async (fresh) => {
        if (!fresh.id || !begun) return;
        const { model } = begun;
        begun = undefined;
        void makeHomeIfWanted(stateKey).catch((failure: unknown) => toast(errorText(failure), { kind: "error" }));
        if (!model) return;
        // If it fails, the select shows that the next reply has the agent's own model.
        await call("PATCH", threadPath(stateKey), { model }).then(
          () => Object.assign(fresh, { model }),
          () => undefined,
        );
      },
    };
  }, [stateKey]);
}
