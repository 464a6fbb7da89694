/** Addresses in what others wrote: which may be followed, and where they go. */

const FOLLOWED = new Set(["http:", "https:", "mailto:"]);

/** The address if it may be a link, else null. What is relative would lead into this page, and is none. */
export function followable(address: string): URL | null {
  try {
    const url = new URL(address);
    return FOLLOWED.has(url.protocol) ? url : null;
  } catch {
    return null;
  }
}

/** Where a link goes, to be shown beside its text; nothing if the text says so itself. */
export function destination(url: URL, text: string): string | null {
  const place = url.protocol === "mailto:" ? url.pathname : url.host;
  return text.toLowerCase().includes(place.toLowerCase()) ? null : place;
}
