import { w1 } from './w1-upload.ts';
import { w3a } from './w3-download.ts';
import { w4 } from './w4-small-downloads.ts';
import { w5Stat } from './w5-metadata.ts';
import type { Workload } from './workload.ts';

/** In the order in which they run. */
export const workloads: readonly Workload[] = [w1, w3a, w4, w5Stat];
