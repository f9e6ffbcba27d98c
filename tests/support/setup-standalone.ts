import { shareSystem } from './shared-system.ts';

export default (): Promise<void> => shareSystem('standalone');
