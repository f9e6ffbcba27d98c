import { endShared } from './shared-system.ts';

export default endShared;
