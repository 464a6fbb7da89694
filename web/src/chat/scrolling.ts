/**
 * Scrolling: the newest message stays in view while the reader is at the end. After scrolling up, only sending a message
 * returns to the end. Older messages are loaded near the top without moving the visible ones.
 */
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Conversing } from "./conversation";

const NEAR_PX = 90;

interface Scrolling {
  place: RefObject<HTMLDivElement | null>;
  older: RefObject<HTMLButtonElement | null>;
  isAtEnd: boolean;
  onScroll: () => void;
  toEnd: () => void;
}

export function useScrolling(talk: Conversing, target: number | undefined): Scrolling {
  const place = useRef<HTMLDivElement>(null);
  const older = useRef<HTMLButtonElement>(null);
  const [isAtEnd, setAtEnd] = useState(true);
  const held = useRef({ isAtEnd: true, firstId: "", askedId: "", height: 0, isPlaced: false, wantsEnd: false });

  const toEnd = () => {
    const element = place.current;
    if (!element) return;
    held.current.wantsEnd = talk.isPast;
    if (talk.isPast) return void talk.toNewest();
    held.current.isAtEnd = true;
    setAtEnd(true);
    element.scrollTop = element.scrollHeight;
  };
  const onScroll = () => {
    const element = place.current;
    if (!element) return;
    const isNear = !talk.isPast && element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
    held.current.isAtEnd = isNear;
    setAtEnd(isNear);
  };

  useLayoutEffect(() => {
    const element = place.current;
    if (!element) return;
    const first = talk.messages[0]?.id ?? "";
    const was = held.current;
    const last = talk.messages.at(-1);
    const askedId = talk.isBusy && last?.role === "user" ? last.id : was.askedId;
    if (was.isPlaced && (askedId !== was.askedId || (was.wantsEnd && !talk.isPast))) was.isAtEnd = true;
    was.wantsEnd &&= talk.isPast;
    if (!was.isPlaced && target !== undefined) {
      const found = element.querySelectorAll<HTMLElement>(".message")[target];
      found?.scrollIntoView({ block: "center" });
      found?.classList.add("message-found");
      was.isAtEnd = false;
    } else if (was.isAtEnd) element.scrollTop = element.scrollHeight;
    else if (first !== was.firstId) element.scrollTop += element.scrollHeight - was.height;
    was.isPlaced = true;
    was.firstId = first;
    was.askedId = askedId;
    was.height = element.scrollHeight;
    onScroll();
  }, [talk.messages, talk.facts, talk.error, talk.isBusy, talk.queued, talk.isPast]);

  useEffect(() => {
    const element = older.current;
    if (!element) return;
    const observer = new IntersectionObserver((seen) => seen.some((e) => e.isIntersecting) && void talk.loadOlder(), {
      root: place.current,
      rootMargin: "600px 0px 0px",
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [talk.firstSeq, talk.messages.length > 0]);

  return { place, older, isAtEnd, onScroll, toEnd };
}
