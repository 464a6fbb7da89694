/**
 * Syntax highlighting, loaded with the first code block. The highlighter returns HTML, which is converted to nodes here,
 * because this page never sets HTML.
 */
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { type ComponentChildren, h } from "preact";

const LANGUAGES = {
  bash,
  c,
  cpp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  markdown,
  python,
  ruby,
  rust,
  sql,
  typescript,
  xml,
  yaml,
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

const PIECE = /<span class="([^"]*)">|(<\/span>)|&(amp|lt|gt|quot|#x27);|[^<&]+/g;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };

export function highlight(code: string, language: string): ComponentChildren | null {
  if (!hljs.getLanguage(language)) return null;
  const html = hljs.highlight(code, { language, ignoreIllegals: true }).value;
  const open: { name: string; children: ComponentChildren[] }[] = [{ name: "", children: [] }];
  for (const [text, name, close, entity] of html.matchAll(PIECE)) {
    if (name !== undefined) open.push({ name, children: [] });
    else if (close) {
      const ended = open.pop();
      if (ended) open.at(-1)?.children.push(h("span", { class: ended.name }, ...ended.children));
    } else open.at(-1)?.children.push(entity ? (ENTITIES[entity] ?? text) : text);
  }
  return open[0]?.children ?? null;
}
