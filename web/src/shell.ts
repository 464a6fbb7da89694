/** Which parts of the page are open. What stands beside the conversation stays as it was left. */
import { Cell } from "./cell";

const KEY = "threadline.panel";
const WIDE = "(min-width: 72rem)";

export const isListOpen = new Cell(false);
export const isPanelOpen = new Cell(matchMedia(WIDE).matches && localStorage.getItem(KEY) !== "closed");

isPanelOpen.subscribe(() => {
  if (matchMedia(WIDE).matches) localStorage.setItem(KEY, isPanelOpen.get() ? "open" : "closed");
});

/** Closes what lies over the conversation; what stands beside it stays. */
export function uncover(): void {
  isListOpen.set(false);
  if (!matchMedia(WIDE).matches) isPanelOpen.set(false);
}
