import packageJson from '../../package.json' with { type: 'json' };

/** The version of Stowage that runs. */
export const version: string = packageJson.version;
