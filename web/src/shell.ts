/** Which parts of the page are open. The details panel keeps its state between visits. */
import { Cell } from "./cell";

const KEY = "threadline.panel";
const WIDE = "(min-width: 72rem)";

export const isListOpen = new Cell(false);
export const isPanelOpen = new Cell(matchMedia(WIDE).matches && localStorage.getItem(KEY) !== "closed");

isPanelOpen.subscribe(() => {
  if (matchMedia(WIDE).matches) localStorage.setItem(KEY, isPanelOpen.get() ? "open" : "closed");
});

/** Closes overlays. On wide screens the details panel is beside the conversation and stays open. */
export function uncover(): void {
  isListOpen.set(false);
  if (!matchMedia(WIDE).matches) isPanelOpen.set(false);
}
