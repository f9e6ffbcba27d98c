import { sharePostgres } from './shared-system.ts';

export default sharePostgres;
