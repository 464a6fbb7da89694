/** Times in the reader's own words and zone. */
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const dayAndYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const time = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function ago(moment: string, now = Date.now()): string {
  const then = new Date(moment);
  const minutes = Math.round((then.getTime() - now) / 60_000);
  if (minutes > -1) return "now";
  if (minutes > -60) return relative.format(minutes, "minute");
  if (minutes > -60 * 24) return relative.format(Math.round(minutes / 60), "hour");
  if (minutes > -60 * 24 * 7) return relative.format(Math.round(minutes / 60 / 24), "day");
  return (then.getFullYear() === new Date(now).getFullYear() ? day : dayAndYear).format(then);
}

export function exactly(moment: string): string {
  return exact.format(new Date(moment));
}

/** The time alone for today, with the day for any other. */
export function briefly(moment: string, now = new Date()): string {
  const then = new Date(moment);
  return then.toDateString() === now.toDateString() ? time.format(then) : exact.format(then);
}
