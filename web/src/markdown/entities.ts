/** Character references of Markdown: `&amp;` in a text is meant to be read as `&`. */
const NAMED: Record<string, string> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  copy: "©",
  hellip: "…",
  mdash: "—",
  ndash: "–",
};

export function plain(text: string): string {
  return text.includes("&") ? text.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,8}));/gi, character) : text;
}

function character(found: string, decimal?: string, hex?: string, name?: string): string {
  if (name) return NAMED[name] ?? found;
  const code = decimal ? Number(decimal) : Number.parseInt(hex ?? "", 16);
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
}
