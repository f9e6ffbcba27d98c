/** Full size where STOWAGE_FAULTS says so, else what fits into CI. */
const full = process.env['STOWAGE_FAULTS'] === 'full';

function size<T>(small: T, large: T): T {
  return full ? large : small;
}

/** How much each fault test does; the large figures are those of the goals. */
export const faultSizes = {
  name: size('CI size', 'full size'),
  /** R08: for how long a backend is away. */
  backendOutageMs: size(60_000, 600_000),
  /** R06: files on each kind of backend, and how often all of them are damaged and read. */
  damagedFiles: size(14, 200),
  damageRounds: size(3, 15),
  /** R07 */
  scrubbedReplicas: size(500, 10_000),
  scrubMutations: size(80, 1_000),
  /** R09: how much is queued for a backend that is slow. */
  jobsOfSlowBackend: size(200, 2_000),
  jobsOfSilentBackend: size(60, 2_000),
  /** R03: every how many-th call is failed. */
  callStep: size(5, 1),
  /** R18: for how long everything races. */
  removalRacesMs: size(30_000, 1_200_000),
  /** R35 */
  secretPatches: 1_000,
  /** R34 */
  backendRaces: size(100, 1_000),
  /** R10 */
  databaseKills: size(5, 50),
  everyShape: full,
  /** R21 */
  terminations: size(50, 200),
  /** R01 */
  kills: size(60, 900),
  killsOfAll: size(6, 200),
  uploads: size(500, 10_000),
  killEveryMs: size(700, 2_000),
  /** R05: for how long there is no room. */
  fullMs: size(2_000, 600_000),
  /** R13: for how long what goes between two processes is lost. */
  partitionMs: size(8_000, 60_000),
  /** R12 */
  policyPuts: size(1_000, 1_000),
  /** R02 */
  powerCuts: size(10, 200),
  logouts: size(20, 1_000),
  /** R16 */
  drillFiles: size(500, 20_000),
  /** R11: every other time its volume is lost too. */
  natsKills: size(3, 20),
  /** For how long writers work beside exports; each of the two shapes has half of it. */
  exportWritersMs: size(24_000, 300_000),
  /** R15: each of the two shapes has half of them. */
  importKills: size(20, 100),
  /** R26: of the installation whose document is written and read; one file takes 1.2 KB of it. */
  documentFiles: size(43_000, 4_300_000),
  /** R36 */
  coldStarts: size(5, 50),
  /** R37 */
  migrationKills: size(5, 30),
  /** R33 */
  poisonJobs: size(10, 200),
};
