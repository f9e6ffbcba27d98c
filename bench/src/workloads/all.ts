import { connections } from './connections.ts';
import { driverBytes, driverRequests } from './driver-check.ts';
import { w10 } from './w10-metadata.ts';
import { w1, w1b } from './w1-upload.ts';
import { w2 } from './w2-small-uploads.ts';
import { w3a, w3b, w3c } from './w3-downloads.ts';
import { w4 } from './w4-small-downloads.ts';
import { w5Growth } from './w5-growth.ts';
import { w5Page, w5Stat } from './w5-metadata.ts';
import { w6 } from './w6-tree-changes.ts';
import { w7 } from './w7-start.ts';
import { w8 } from './w8-second-copy.ts';
import { w9 } from './w9-nothing-to-do.ts';
import type { Workload } from './workload.ts';

/** In the order in which they run. */
export const workloads: readonly Workload[] = [
  driverRequests,
  driverBytes,
  w1,
  w1b,
  w2,
  w3a,
  w3b,
  w3c,
  w4,
  w5Stat,
  w5Page,
  w5Growth,
  w6,
  connections,
  w7,
  w8,
  w9,
  w10,
];
