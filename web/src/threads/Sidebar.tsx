/** The sidebar: the list of threads or search results, and a button for a new thread. Arrow keys move the focus. */
import { useEffect, useRef, useState } from "preact/hooks";
import { endSession, loadSignInOptions, signInOptions } from "../access";
import { errorText } from "../api";
import { useCell } from "../cell";
import { Devices } from "../Devices";
import { openNew, route } from "../router";
import { token } from "../session";
import { IconButton } from "../ui/IconButton";
import { Icon, Mark } from "../ui/icons";
import { toast } from "../ui/toasts";
import { Hits } from "./Hits";
import { useSearch } from "./searching";
import { listing, more, refresh } from "./store";
import { ThreadRow } from "./ThreadRow";

const REFRESH_MS = 15_000;

export function Sidebar({ onClose }: { onClose: () => void }) {
  const shown = useCell(listing);
  const here = useCell(route);
  const [words, setWords] = useState("");
  const [found, loadMore] = useSearch(words);
  useRefresh();
  return (
    <nav class="sidebar" aria-label="Threads" onKeyDown={moveBetweenRows}>
      <header class="sidebar-head">
        <a
          class="brand"
          href="./"
          onClick={(event) => {
            event.preventDefault();
            openNew();
            onClose();
          }}
        >
          <Mark />
          Threadline
        </a>
        <IconButton icon="close" label="Close the thread list" class="only-narrow" onClick={onClose} />
      </header>
      <div class="sidebar-tools">
        <button
          type="button"
          class="button button-new"
          onClick={() => {
            openNew();
            onClose();
          }}
        >
          <Icon name="plus" />
          New thread
        </button>
        <div class="search">
          <Icon name="search" />
          <input
            type="search"
            id="search"
            placeholder="Search"
            aria-label="Search all threads"
            value={words}
            onInput={(event) => setWords(event.currentTarget.value)}
            onKeyDown={(event) => event.key === "Escape" && setWords("")}
          />
        </div>
      </div>
      {words.trim() ? (
        <Hits words={words} found={found} onMore={loadMore} onOpen={onClose} />
      ) : (
        <ThreadList shown={shown} current={here.stateKey} onOpen={onClose} />
      )}
      <footer class="sidebar-foot">
        <button type="button" class="link-button" onClick={() => void refresh(!shown.archived)}>
          {shown.archived ? "Back to all threads" : "Archived threads"}
        </button>
        <Account />
      </footer>
    </nav>
  );
}

/** Hidden where nobody signs in. */
function Account() {
  const options = useCell(signInOptions);
  const [isShown, setShown] = useState(false);
  useEffect(loadSignInOptions, []);
  const leave = () => void endSession(false).catch((error: unknown) => toast(errorText(error), { kind: "error" }));
  if (!token() && !options?.isRequired) return null;
  return (
    <>
      {options?.isRequired && (
        <button type="button" class="link-button" onClick={() => setShown(true)}>
          Devices
        </button>
      )}
      <button type="button" class="link-button" onClick={leave}>
        Sign out
      </button>
      {isShown && <Devices onClose={() => setShown(false)} />}
    </>
  );
}

type Shown = ReturnType<typeof listing.get>;

function ThreadList({ shown, current, onOpen }: { shown: Shown; current: string; onOpen: () => void }) {
  if (shown.state === "loading") return <Loading />;
  if (shown.state === "failed")
    return (
      <div class="list-note" role="alert">
        <p>{shown.failure}</p>
        <button type="button" class="button" onClick={() => void refresh()}>
          Try again
        </button>
      </div>
    );
  if (!shown.threads.length)
    return <p class="list-note">{shown.archived ? "No archived threads." : "Your threads will appear here."}</p>;
  return (
    <div class="list">
      <ul aria-label={shown.archived ? "Archived threads" : "Threads"}>
        {shown.threads.map((thread) => (
          <ThreadRow key={thread.stateKey} thread={thread} isCurrent={thread.stateKey === current} onOpen={onOpen} />
        ))}
      </ul>
      {shown.nextCursor && <MoreWhenSeen key={shown.nextCursor} />}
    </div>
  );
}

/** Loads the next page when the end of the list is near. */
function MoreWhenSeen() {
  const place = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && void more(), {
      rootMargin: "400px",
    });
    if (place.current) observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return (
    <button ref={place} type="button" class="link-button list-more" onClick={() => void more()}>
      Load more threads
    </button>
  );
}

function Loading() {
  return (
    <div class="list" role="status" aria-label="Loading threads">
      {[70, 45, 60, 52, 38].map((width) => (
        <div key={width} class="row-ghost">
          <span class={`ghost ghost-${width}`} />
          <span class="ghost ghost-short" />
        </div>
      ))}
    </div>
  );
}

function useRefresh(): void {
  useEffect(() => {
    void refresh();
    const again = () => document.visibilityState === "visible" && void refresh();
    const timer = window.setInterval(again, REFRESH_MS);
    window.addEventListener("focus", again);
    window.addEventListener("online", again);
    return () => {
      window.clearInterval(timer);
      window.removeEventListener("focus", again);
      window.removeEventListener("online", again);
    };
  }, []);
}

function moveBetweenRows(event: KeyboardEvent): void {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const side = event.currentTarget as HTMLElement;
  const stops = [...side.querySelectorAll<HTMLElement>("#search, .row-link")];
  const at = stops.indexOf(document.activeElement as HTMLElement);
  if (at < 0) return;
  event.preventDefault();
  stops[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
}
