/** A block of code with a button that copies it. Colours come later, once the highlighter is loaded and it is whole. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { CopyButton } from "../ui/CopyButton";

interface Props {
  code: string;
  language: string | undefined;
  isOpen?: boolean;
}

const COLOURED_AT_MOST = 40_000;

export function CodeBlock({ code, language, isOpen = false }: Props) {
  const name = language?.split(/\s/)[0] ?? "";
  const [coloured, setColoured] = useState<{ code: string; nodes: ComponentChildren } | null>(null);
  useEffect(() => {
    if (isOpen || !name || code.length > COLOURED_AT_MOST) return;
    let isWanted = true;
    void import("./highlight").then(({ highlight }) => {
      const nodes = highlight(code, name);
      if (isWanted && nodes) setColoured({ code, nodes });
    });
    return () => {
      isWanted = false;
    };
  }, [code, name, isOpen]);
  return (
    <figure class="code">
      <figcaption>
        <span>{name || "text"}</span>
        <CopyButton text={code} label="Copy code" />
      </figcaption>
      <pre tabIndex={0} role="group" aria-label={name ? `Code, ${name}` : "Code"}>
        <code>{coloured?.code === code ? coloured.nodes : code}</code>
      </pre>
    </figure>
  );
}
