/** A value that components can watch: the whole state management of this page. */
import { useSyncExternalStore } from "preact/compat";

export class Cell<T> {
  private readonly watchers = new Set<() => void>();

  constructor(private held: T) {}

  get = (): T => this.held;

  set = (value: T): void => {
    if (Object.is(value, this.held)) return;
    this.held = value;
    for (const watcher of [...this.watchers]) watcher();
  };

  change = (how: (value: T) => T): void => this.set(how(this.held));

  subscribe = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };
}

export function useCell<T>(cell: Cell<T>): T {
  return useSyncExternalStore(cell.subscribe, cell.get);
}
