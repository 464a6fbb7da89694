/** The page: sidebar, conversation and toasts; or the sign-in form. */
import { useEffect } from "preact/hooks";
import { useCell } from "./cell";
import { ThreadView } from "./chat/ThreadView";
import { openNew, route } from "./router";
import { SignIn } from "./SignIn";
import { signInWanted } from "./session";
import { isListOpen, isPanelOpen, uncover } from "./shell";
import { Sidebar } from "./threads/Sidebar";
import { Toasts } from "./ui/toasts";

export function App() {
  const at = useCell(route);
  const isAsked = useCell(signInWanted);
  const isListShown = useCell(isListOpen);
  useShortcuts();
  if (isAsked) return <SignIn />;
  const closeList = () => isListOpen.set(false);
  return (
    <div class={isListShown ? "page page-list-open" : "page"}>
      {/* biome-ignore lint/a11y/useValidAnchor: a skip link; the handler only keeps the address as it is */}
      <a class="skip" href="#composer" onClick={skip}>
        Skip to the conversation
      </a>
      <Sidebar onClose={closeList} />
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: Escape does the same, see useShortcuts */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a backdrop, not a control */}
      <div class="veil" onClick={closeList} />
      <main class="main">
        <ThreadView key={`${at.stateKey} ${at.seq ?? ""}`} at={at} />
      </main>
      <Toasts />
    </div>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("composer")?.focus();
}

/** `/` searches, Alt+N starts a thread, Alt+D toggles the details, Escape closes overlays. */
function useShortcuts(): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const isWriting = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
      if ((event.key === "/" && !isWriting) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
        event.preventDefault();
        isListOpen.set(true);
        document.getElementById("search")?.focus();
      } else if (event.altKey && event.code === "KeyN") {
        event.preventDefault();
        openNew();
      } else if (event.altKey && event.code === "KeyD") {
        event.preventDefault();
        isPanelOpen.change((isOpen) => !isOpen);
      } else if (event.key === "Escape") uncover();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
}
