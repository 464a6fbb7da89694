/** Search results: passages with marked words, each linked to its message. */
import type { Hit } from "../api";
import { hrefOf, open } from "../router";
import { ago } from "../times";
import type { Found } from "./Sidebar";
import { titleOf } from "./ThreadRow";

interface Props {
  words: string;
  found: Found | null;
  onOpen: () => void;
}

export function Hits({ words, found, onOpen }: Props) {
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
        {found.hits.length
          ? `${found.hits.length} ${found.hits.length === 1 ? "result" : "results"}`
          : `No messages match “${words.trim()}”.`}
      </p>
      <ul aria-label="Search results">
        {found.hits.map((hit) => (
          <HitRow key={`${hit.stateKey} ${hit.messageId}`} hit={hit} words={found.words} onOpen={onOpen} />
        ))}
      </ul>
    </div>
  );
}

function HitRow({ hit, words, onOpen }: { hit: Hit; words: string; onOpen: () => void }) {
  return (
    <li class="row">
      <a
        class="row-link"
        href={hrefOf(hit.stateKey)}
        onClick={(event) => {
          event.preventDefault();
          open(hit.stateKey, hit.seq);
          onOpen();
        }}
      >
        <span class="row-title">{titleOf(hit)}</span>
        <span class="row-passage">
          <Marked text={hit.snippet} words={words} />
        </span>
        <span class="row-more">
          {hit.role === "user" ? "You" : hit.role} · {ago(hit.createdAt)}
        </span>
      </a>
    </li>
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
