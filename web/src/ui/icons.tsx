/** The icons: strokes of one weight, drawn here so that nothing is fetched. They are decoration; labels say the words. */
const PATHS = {
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  menu: "M4 7h16M4 12h16M4 17h10",
  panel: "M4 5h16v14H4zM15 5v14",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 13l4 4L19 7",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  again: "M19 12a7 7 0 1 1-2-5M19 4v4h-4",
  branch: "M7 4v16M7 9c0 5 10 2 10 8v3M17 20v-3",
  flag: "M6 21V4h11l-2 4 2 4H6",
  eye: "M3 12s3-6 9-6 9 6 9 6-3 6-9 6-9-6-9-6ZM12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  archive: "M4 5h16v4H4zM6 9v10h12V9M10 13h4",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  tool: "M14 6a4 4 0 0 0-5 5l-5 5 3 3 5-5a4 4 0 0 0 5-5l-2.5 2.5-3-1-1-3z",
  thought: "M9 18h6M10 21h4M12 3a6 6 0 0 0-3.5 10.9c.6.5.9 1.2.9 2.1h5.2c0-.9.3-1.6.9-2.1A6 6 0 0 0 12 3Z",
  link: "M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-5.7-5.7L12 7M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 5.7 5.7L12 17",
  alert: "M12 4l9 16H3zM12 10v4M12 17h.01",
  undo: "M8 5L4 9l4 4M4 9h10a5 5 0 0 1 0 10h-4",
  pin: "M12 21v-6M8 4h8l-1 6 3 3v2H6v-2l3-3z",
  down: "M12 5v14M6 13l6 6 6-6",
  phone: "M8 3h8v18H8zM11 18h2",
  keyboard: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Threadline's mark: a thread, and where it forks. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
      <path d="M8 3v18M8 9c0 5 8 3 8 9v3" />
      <circle cx="8" cy="7" r="2.6" />
      <circle cx="16" cy="17" r="2.6" class="mark-fork" />
    </svg>
  );
}
