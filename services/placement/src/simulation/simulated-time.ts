import type { Random } from '@stowage/tests/support/random';

/** A process: what waits in it goes on only while it runs. */
export interface SimulatedProcess {
  name: string;
  /** Stands still until then. */
  frozenUntil: number;
  dead: boolean;
}

interface Waiting {
  process: SimulatedProcess | null;
  go: () => void;
}

/** A clock and a scheduler that a seed decides: one thing after the other goes on, whichever comes next. */
export class SimulatedTime {
  now = 0;
  readonly random: Random;
  #waiting: Waiting[] = [];

  constructor(random: Random) {
    this.random = random;
  }

  /** Until it is this one's turn; null is a server, which always runs. What waits in a process that died never goes on. */
  turn(process: SimulatedProcess | null): Promise<void> {
    return new Promise((go) => this.#waiting.push({ process, go }));
  }

  get isIdle(): boolean {
    return this.#waiting.length === 0;
  }

  /** Lets one of those that can go on do so, up to where it waits again. False where none can. */
  async step(): Promise<boolean> {
    this.#waiting = this.#waiting.filter(({ process }) => !process?.dead);
    const able = this.#waiting.filter(({ process }) => process === null || process.frozenUntil <= this.now);
    const next = able[this.random.integer(0, able.length - 1)];
    if (!next) return false;
    this.#waiting.splice(this.#waiting.indexOf(next), 1);
    next.go();
    // A tick comes once no microtask is left; a turn of the event loop would do that too, and cost a hundred times as much.
    await new Promise<void>((settled) => process.nextTick(settled));
    return true;
  }
}
