import type { Finding } from './unreadable.ts';

/** As many of each are kept; an admin reads the first ones. */
export const findingsMax = 1_000;

/** What was found about a document. */
export class Findings {
  readonly errors: Finding[] = [];
  readonly warnings: Finding[] = [];
  /** All of them, also those that are not kept. */
  errorCount = 0;

  error(pointer: string, code: string, detail: string): void {
    this.errorCount += 1;
    if (this.errors.length < findingsMax) this.errors.push({ pointer, code, detail });
  }

  warning(pointer: string, code: string, detail: string): void {
    if (this.warnings.length < findingsMax) this.warnings.push({ pointer, code, detail });
  }

  /** Leaves this as the only error: what was found before follows from it. */
  only({ pointer, code, detail }: Finding): void {
    this.errors.length = 0;
    this.warnings.length = 0;
    this.errorCount = 0;
    this.error(pointer, code, detail);
  }
}
