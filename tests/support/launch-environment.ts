/** What every launcher that a test starts is given of the test's own environment. */
export function launchEnvironment(): Record<string, string | undefined> {
  return {
    PATH: process.env['PATH'],
    HOME: process.env['HOME'],
    // As with `npm start`: six processes that compile everything anew take twice as long to start.
    NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
    // So that a run can have its services speak TLS.
    STOWAGE_TLS_DIR: process.env['STOWAGE_TLS_DIR'],
  };
}
