/** A button that shows an icon and says its name. */
import type { JSX } from "preact";
import { Icon, type IconName } from "./icons";

type Rest = Omit<JSX.IntrinsicElements["button"], "icon" | "label">;

export function IconButton({ icon, label, class: named = "", ...rest }: Rest & { icon: IconName; label: string }) {
  return (
    <button type="button" class={`icon-button ${named as string}`} aria-label={label} title={label} {...rest}>
      <Icon name={icon} />
    </button>
  );
}
