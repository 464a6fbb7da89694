/** URLs in messages: which may be links, and their hosts. */

const FOLLOWED = new Set(["http:", "https:", "mailto:"]);

/** The URL if it may be a link, else null. Relative URLs would lead into this page, so they are refused. */
export function followable(address: string): URL | null {
  try {
    const url = new URL(address);
    return FOLLOWED.has(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

/** The host to show beside a link's text; empty if the text contains it. */
export function destination(url: URL, text: string): string | null {
  const place = url.protocol === "mailto:" ? url.pathname : url.host;
  return text.toLowerCase().includes(place.toLowerCase()) ? null : place;
}
