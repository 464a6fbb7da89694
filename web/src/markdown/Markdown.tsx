/**
 * Markdown as elements: marked reads it, this makes nodes of what it read, and no text ever becomes markup. HTML in it
 * is shown as it was written, pictures from elsewhere by their address, links with the place they go to.
 *
 * While an answer streams in, blocks that are complete are neither read nor drawn again.
 */
import { lexer, type Token, type Tokens } from "marked";
import { type ComponentChildren, Fragment } from "preact";
import { memo } from "preact/compat";
import { useRef } from "preact/hooks";
import { CodeBlock } from "./CodeBlock";
import { plain } from "./entities";
import { destination, followable } from "./links";

interface Props {
  text: string;
  isStreaming?: boolean;
}

export const Markdown = memo(function Markdown({ text, isStreaming = false }: Props) {
  const tokens = useTokens(text);
  return (
    <div class="prose">
      {tokens.map((token, at) => (
        <Block key={at} token={token} isOpen={isStreaming && at === tokens.length - 1} />
      ))}
    </div>
  );
});

/** Blocks before the last two cannot change by more text, so only the rest is read again. */
function useTokens(text: string): Token[] {
  const before = useRef<{ text: string; tokens: Token[] }>({ text: "", tokens: [] });
  const settled = text.startsWith(before.current.text) ? before.current.tokens.slice(0, -2) : [];
  const length = settled.reduce((sum, token) => sum + token.raw.length, 0);
  const tokens = text === before.current.text ? before.current.tokens : [...settled, ...lexer(text.slice(length))];
  before.current = { text, tokens };
  return tokens;
}

const Block = memo(
  function Block({ token, isOpen }: { token: Token; isOpen: boolean }) {
    return <>{block(token, isOpen)}</>;
  },
  (before, after) => before.token.raw === after.token.raw && before.isOpen === after.isOpen,
);

function block(token: Token, isOpen: boolean): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      return <Heading depth={(token as Tokens.Heading).depth}>{inline(token.tokens)}</Heading>;
    case "paragraph":
      return <p dir="auto">{inline(token.tokens)}</p>;
    case "code":
      return <CodeBlock code={token.text as string} language={(token as Tokens.Code).lang} isOpen={isOpen} />;
    case "blockquote":
      return <blockquote dir={directionOf(token.raw)}>{blocks(token.tokens)}</blockquote>;
    case "list":
      return <List list={token as Tokens.List} />;
    case "table":
      return <Table table={token as Tokens.Table} />;
    case "hr":
      return <hr />;
    case "text":
      return token.tokens ? inline(token.tokens) : (token.text as string);
    default:
      return <p class="raw">{token.raw}</p>;
  }
}

/** What `dir="auto"` would find if it looked into the paragraphs of a list, which have their own direction. */
function directionOf(text: string): "ltr" | "rtl" {
  const first = /\p{L}/u.exec(text)?.[0] ?? "";
  return /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u.test(first)
    ? "rtl"
    : "ltr";
}

function blocks(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, at) => <Fragment key={at}>{block(token, false)}</Fragment>);
}

/** The page has a first and a second level already. */
function Heading({ depth, children }: { depth: number; children: ComponentChildren }) {
  if (depth === 1) return <h3 dir="auto">{children}</h3>;
  return depth === 2 ? <h4 dir="auto">{children}</h4> : <h5 dir="auto">{children}</h5>;
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, at) => (
    <li key={at} class={item.task ? "task" : undefined}>
      {item.task && <input type="checkbox" checked={Boolean(item.checked)} disabled aria-label="done" />}
      {blocks(item.tokens.filter((token) => token.type !== "checkbox"))}
    </li>
  ));
  const dir = directionOf(list.raw);
  if (!list.ordered) return <ul dir={dir}>{items}</ul>;
  return (
    <ol dir={dir} start={Number(list.start) || 1}>
      {items}
    </ol>
  );
}

function Table({ table }: { table: Tokens.Table }) {
  const cells = (row: Tokens.TableCell[], Cell: "th" | "td") => (
    <tr>
      {row.map((cell, at) => (
        <Cell key={at} class={cell.align ? `align-${cell.align}` : undefined}>
          {inline(cell.tokens)}
        </Cell>
      ))}
    </tr>
  );
  return (
    <div class="table" tabIndex={0} role="group" aria-label="Table">
      <table dir={directionOf(table.raw)}>
        <thead>{cells(table.header, "th")}</thead>
        <tbody>
          {table.rows.map((row, at) => (
            <Fragment key={at}>{cells(row, "td")}</Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, at) => <Fragment key={at}>{phrase(token)}</Fragment>);
}

function phrase(token: Token): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong>{inline(token.tokens)}</strong>;
    case "em":
      return <em>{inline(token.tokens)}</em>;
    case "del":
      return <del>{inline(token.tokens)}</del>;
    case "codespan":
      return <code>{token.text as string}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link token={token as Tokens.Link} />;
    case "image":
      return <Picture token={token as Tokens.Image} />;
    case "escape":
      return token.text as string;
    case "text":
      return token.tokens ? inline(token.tokens) : plain(token.text as string);
    default:
      return token.raw;
  }
}

function Link({ token }: { token: Tokens.Link }) {
  const url = followable(token.href);
  if (!url) return <>{token.raw}</>;
  const place = destination(url, token.text);
  return (
    <a href={url.href} target="_blank" rel="noopener noreferrer" title={url.href}>
      {inline(token.tokens)}
      {place && <span class="place"> ({place})</span>}
    </a>
  );
}

const DRAWN = /^data:image\/(png|jpeg|gif|webp);base64,/i;

/** A picture from elsewhere would tell its server that someone reads this, so only its address is shown. */
function Picture({ token }: { token: Tokens.Image }) {
  if (DRAWN.test(token.href)) return <img class="picture" src={token.href} alt={token.text} />;
  const url = followable(token.href);
  if (!url) return <>{token.raw}</>;
  return (
    <span class="picture-note">
      Image{token.text ? ` “${token.text}”` : ""}, not loaded:{" "}
      <a href={url.href} target="_blank" rel="noopener noreferrer">
        {url.href}
      </a>
    </span>
  );
}
