/** Search as you type: what was found for the words in the box, page by page. */
import { useEffect, useRef, useState } from "preact/hooks";
import { errorText, type FoundThread } from "../api";
import { search } from "./store";

const TYPING_MS = 140;

export interface Found {
  words: string;
  threads: FoundThread[];
  nextCursor?: string | undefined;
  failure?: string;
}

/** The results, null while the first page is requested, and a function that loads the next page. */
export function useSearch(words: string): [Found | null, () => void] {
  const [found, setFound] = useState<Found | null>(null);
  const asking = useRef(new AbortController());
  const load = (shown: Found | null) => {
    const { signal } = asking.current;
    search(words, signal, shown?.nextCursor).then(
      (page) =>
        signal.aborted ||
        setFound({ words, threads: [...(shown?.threads ?? []), ...page.threads], nextCursor: page.nextCursor }),
      (error: unknown) =>
        signal.aborted || setFound({ words, threads: shown?.threads ?? [], failure: errorText(error) }),
    );
  };
  useEffect(() => {
    asking.current = new AbortController();
    if (!words.trim()) {
      setFound(null);
      return;
    }
    const timer = window.setTimeout(() => load(null), TYPING_MS);
    return () => {
      window.clearTimeout(timer);
      asking.current.abort();
    };
  }, [words]);
  return [found, () => found?.nextCursor && found.words === words && load(found)];
}
