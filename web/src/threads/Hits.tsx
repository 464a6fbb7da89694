/** Search results: threads, each with its best passages and marked words. A passage links to its message. */
import type { ComponentChildren } from "preact";
import type { FoundThread, Hit } from "../api";
import { hrefOf, open } from "../router";
import { ago } from "../times";
import type { Found } from "./searching";
import { titleOf } from "./ThreadRow";

interface Props {
  words: string;
  found: Found | null;
  onMore: () => void;
  onOpen: () => void;
}

export function Hits({ words, found, onMore, onOpen }: Props) {
  if (!found)
    return (
      <p class="list-note" role="status">
        Searching…
      </p>
    );
  if (found.failure)
    return (
      <p class="list-note" role="alert">
        {found.failure}
      </p>
    );
  return (
    <div class="list">
      <p class="list-count" role="status">
        {summaryOf(found, words)}
      </p>
      <ul aria-label="Search results">
        {found.threads.map((thread) => (
          <FoundRow key={thread.threadId} thread={thread} words={found.words} onOpen={onOpen} />
        ))}
      </ul>
      {found.nextCursor && (
        <button type="button" class="link-button list-more" onClick={onMore}>
          More results
        </button>
      )}
    </div>
  );
}

function summaryOf({ threads, nextCursor }: Found, words: string): string {
  if (!threads.length) return `Nothing matches “${words.trim()}”.`;
  const count = `${threads.length}${nextCursor ? "+" : ""}`;
  return `${count} ${threads.length === 1 ? "thread" : "threads"}`;
}

function FoundRow({ thread, words, onOpen }: { thread: FoundThread; words: string; onOpen: () => void }) {
  const more = thread.hitCount - thread.hits.length;
  return (
    <li class="row found">
      <Place stateKey={thread.stateKey} onOpen={onOpen}>
        <span class="row-title">
          <Marked text={titleOf(thread)} words={words} />
        </span>
        <span class="row-more">
          {thread.hitCount > 0 && `${thread.hitCount} ${thread.hitCount === 1 ? "message" : "messages"} · `}
          {ago(thread.updatedAt)}
        </span>
      </Place>
      {thread.hits.map((hit) => (
        <Place key={hit.messageId} stateKey={hit.stateKey} hit={hit} onOpen={onOpen}>
          <span class="row-passage">
            <Marked text={hit.snippet} words={words} />
          </span>
          <span class="row-more">
            {hit.role === "user" ? "You" : hit.role} · {ago(hit.createdAt)}
          </span>
        </Place>
      ))}
      {more > 0 && <span class="found-more">{more} more in this thread</span>}
    </li>
  );
}

interface PlaceProps {
  stateKey: string;
  hit?: Hit;
  onOpen: () => void;
  children: ComponentChildren;
}

function Place({ stateKey, hit, onOpen, children }: PlaceProps) {
  return (
    <a
      class={hit ? "row-link found-passage" : "row-link"}
      href={hrefOf(stateKey)}
      onClick={(event) => {
        event.preventDefault();
        open(stateKey, hit?.seq);
        onOpen();
      }}
    >
      {children}
    </a>
  );
}

function Marked({ text, words }: { text: string; words: string }) {
  const wanted = words
    .trim()
    .split(/\s+/)
    .map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pieces = text.split(new RegExp(`(${wanted.join("|")})`, "giu"));
  return <>{pieces.map((piece, at) => (at % 2 ? <mark key={at}>{piece}</mark> : piece))}</>;
}
