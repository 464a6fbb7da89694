/** One thread of the list: its title, when something last happened, where it was used, and what can be done with it. */
import { useState } from "preact/hooks";
import type { Thread } from "../api";
import { hrefOf, open, openNew } from "../router";
import { ago, exactly } from "../times";
import { AskName } from "../ui/AskName";
import { Menu } from "../ui/Menu";
import { archive, remove, rename } from "./store";

interface Props {
  thread: Thread;
  isCurrent: boolean;
  onOpen: () => void;
}

export function titleOf(thread: Pick<Thread, "title">): string {
  return thread.title || "Untitled";
}

const CHIPS = 2;

/** Where else the thread was used: as many as fit, and how many more. */
function Surfaces({ names }: { names: string[] }) {
  const rest = names.slice(CHIPS);
  return (
    <>
      {names.slice(0, CHIPS).map((name) => (
        <span key={name} class="surface">
          {name}
        </span>
      ))}
      {rest.length > 0 && (
        <span class="surface" title={rest.join(", ")}>
          +{rest.length}
        </span>
      )}
    </>
  );
}

export function ThreadRow({ thread, isCurrent, onOpen }: Props) {
  const [isRenaming, setRenaming] = useState(false);
  const title = titleOf(thread);
  const discard = () => {
    if (isCurrent) openNew();
    void remove(thread);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!thread.id) return;
    if (event.key === "F2") setRenaming(true);
    if (event.key === "Delete") discard();
  };
  return (
    <li class={isCurrent ? "row row-current" : "row"}>
      <a
        class="row-link"
        href={hrefOf(thread.stateKey)}
        aria-current={isCurrent ? "page" : undefined}
        onKeyDown={onKeyDown}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          open(thread.stateKey);
          onOpen();
        }}
      >
        <span class="row-title" dir="auto">
          {title}
        </span>
        <span class="row-more">
          {thread.updatedAt && (
            <time dateTime={thread.updatedAt} title={exactly(thread.updatedAt)}>
              {ago(thread.updatedAt)}
            </time>
          )}
          <Surfaces names={(thread.surfaces ?? []).filter((name) => name !== "web")} />
        </span>
      </a>
      {thread.id && (
        <Menu
          label={`Actions for ${title}`}
          choices={[
            { label: "Rename", icon: "edit", run: () => setRenaming(true) },
            thread.archivedAt
              ? { label: "Unarchive", icon: "archive", run: () => void archive(thread, false) }
              : { label: "Archive", icon: "archive", run: () => void archive(thread, true) },
            { label: "Delete", icon: "trash", run: discard },
          ]}
        />
      )}
      {isRenaming && (
        <AskName
          title="Rename thread"
          label="Title"
          action="Rename"
          initial={thread.title ?? ""}
          onDone={(given) => void rename(thread, given)}
          onClose={() => setRenaming(false)}
        />
      )}
    </li>
  );
}
