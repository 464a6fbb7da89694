/** A small menu behind a button: arrow keys move in it, Escape and a click elsewhere close it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { IconButton } from "./IconButton";
import { Icon, type IconName } from "./icons";

export interface Choice {
  label: string;
  icon: IconName;
  run: () => void;
}

export function Menu({ label, choices, icon = "more" }: { label: string; choices: Choice[]; icon?: IconName }) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!isOpen) return;
    place.current?.querySelector<HTMLElement>('[role="menuitem"]')?.focus();
    const onPointer = (event: Event) => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", onPointer);
    return () => document.removeEventListener("pointerdown", onPointer);
  }, [isOpen]);

  const close = () => {
    setOpen(false);
    place.current?.querySelector<HTMLElement>("button")?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!isOpen) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      event.stopPropagation();
      const items = [...(place.current?.querySelectorAll<HTMLElement>('[role="menuitem"]') ?? [])];
      const at = items.indexOf(document.activeElement as HTMLElement);
      items[(at + (event.key === "ArrowDown" ? 1 : items.length - 1)) % items.length]?.focus();
    } else if (event.key === "Tab") setOpen(false);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: receives the keys of the buttons inside
    <div class="menu" ref={place} onKeyDown={onKeyDown}>
      <IconButton
        icon={icon}
        label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      />
      {isOpen && (
        <div class="menu-list" role="menu" aria-label={label}>
          {choices.map((choice) => (
            <button
              key={choice.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              onClick={() => {
                close();
                choice.run();
              }}
            >
              <Icon name={choice.icon} />
              {choice.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
